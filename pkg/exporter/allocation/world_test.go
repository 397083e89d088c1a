package allocation

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	driverName = "gpu.prism.dev"
	cdiKind    = "k8s.gpu.prism.dev/claim"
	boot       = "boot"
)

// never is a schedule without periodic actions; retries wait for an hour.
var never = schedule{
	records: time.Hour, pods: time.Hour, listAfter: time.Millisecond, rewatch: time.Millisecond, restarted: time.Hour,
	cri: time.Hour, criAway: time.Hour, criQuiet: time.Hour, criLongest: time.Hour, absent: time.Hour,
}

// world is a node: records, a kubelet, a runtime and a /proc.
type world struct {
	t       *testing.T
	dir     string
	records *checkpoint.Store
	kubelet *kubelet
	runtime *criServer
	tracker *Tracker
}

func newWorld(t *testing.T, s schedule) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), kubelet: &kubelet{}, runtime: &criServer{}}
	w.open()
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "proc"), 0o755))
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()), filepath.Join(w.dir, "proc/self")))
	w.serveKubelet()
	w.serveRuntime()
	w.tracker = w.newTracker(s)
	return w
}

func (w *world) newTracker(s schedule) *Tracker { return newTracker(w.options(), s) }

func (w *world) options() Options {
	return Options{
		Records: filepath.Join(w.dir, "plugin"), BootID: boot, DriverName: driverName, CDIKind: cdiKind,
		KubeletSocket: w.kubeletSocket(), HostRoot: w.dir, ProcRoot: filepath.Join(w.dir, "proc"),
		DaemonsDir: filepath.Join(w.dir, "run", driverName, "mps"),
	}
}

func (w *world) open() {
	w.t.Helper()
	store, err := checkpoint.Open(disk.OS{}, filepath.Join(w.dir, "plugin"))
	require.NoError(w.t, err)
	w.records = store
}

// run runs the tracker until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.tracker.Run(ctx) })
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// read reads records and pods once.
func (w *world) read() {
	w.tracker.readRecords(make(chan struct{}, 1))
	w.tracker.listPods(w.t.Context())
}

// list lists the allocations without the times.
func (w *world) list() []metrics.Allocation {
	list := slices.Clone(w.tracker.Allocations().List)
	for i := range list {
		list[i].Since = time.Time{}
	}
	return list
}

func (w *world) source(name SourceName) Source {
	for _, source := range w.tracker.Sources() {
		if source.Name == name {
			return source
		}
	}
	w.t.Fatalf("no source %s", name)
	return Source{}
}

// eventually waits for an effect of another goroutine or process.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	require.Eventually(w.t, is, time.Minute, time.Millisecond, what)
}

func (w *world) put(records ...*checkpoint.Record) {
	w.t.Helper()
	for _, r := range records {
		require.NoError(w.t, w.records.Put(r))
	}
}

// record is the record of a prepared claim in namespace "ns" with these results.
func record(uid string, results ...checkpoint.Result) *checkpoint.Record {
	r := &checkpoint.Record{
		Claim: checkpoint.Claim{UID: uid, Namespace: "ns", Name: "claim-" + uid}, BootID: boot, State: checkpoint.Done, Results: results,
		CDI: checkpoint.CDI{Kind: cdiKind},
	}
	for i := range results {
		r.CDI.Devices = append(r.CDI.Devices, fmt.Sprintf("%s-%s", uid, results[i].Device))
	}
	return r
}

func whole(device string) checkpoint.Result {
	return checkpoint.Result{Request: "gpu", Pool: "node", Device: device, Type: gpu.TypeGPU, GPUUUID: gpu.UUID("GPU-" + device)}
}

func migDevice(device, uuid string) checkpoint.Result {
	r := whole(device)
	r.Type, r.MIG = gpu.TypeMIG, &checkpoint.MIG{Name: "1g.10gb", Identity: gpu.MIGIdentity{GPUInstance: 7, UUID: gpu.MIGUUID(uuid)}}
	r.GPUUUID = "GPU-0"
	return r
}

// in returns the record in another state.
func in(state checkpoint.State, r *checkpoint.Record) *checkpoint.Record {
	r.State = state
	return r
}

// kubelet is a kubelet with these pods.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu    sync.Mutex
	pods  []*podresources.PodResources
	calls atomic.Int64
	stop  func()
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.calls.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func (k *kubelet) set(pods ...*podresources.PodResources) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = pods
}

// pod is a pod whose containers use one claim each.
func pod(name string, containers map[string]*checkpoint.Record) *podresources.PodResources {
	p := &podresources.PodResources{Namespace: "ns", Name: name}
	for container, r := range containers {
		claim := &podresources.DynamicResource{ClaimNamespace: "ns", ClaimName: r.Claim.Name}
		for i := range r.Results {
			resource := &podresources.ClaimResource{
				DriverName: driverName, PoolName: r.Results[i].Pool, DeviceName: r.Results[i].Device,
				CdiDevices: []*podresources.CDIDevice{{Name: cdiKind + "=" + r.CDI.Devices[i]}},
			}
			if r.Results[i].ShareID != "" {
				resource.ShareId = new(r.Results[i].ShareID)
			}
			claim.ClaimResources = append(claim.ClaimResources, resource)
		}
		p.Containers = append(p.Containers, &podresources.ContainerResources{Name: container, DynamicResources: []*podresources.DynamicResource{claim}})
	}
	return p
}

func (w *world) kubeletSocket() string { return filepath.Join(w.dir, "kubelet.sock") }

// serveKubelet starts the kubelet, which recreates its socket.
func (w *world) serveKubelet() {
	w.t.Helper()
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, w.kubelet)
	w.kubelet.stop = w.serve(w.kubeletSocket(), server)
}

// criServer is a container runtime with these containers and sandboxes.
type criServer struct {
	cri.UnimplementedRuntimeServiceServer
	mu         sync.Mutex
	containers []*cri.Container
	calls      atomic.Int64
	sandboxes  []*cri.PodSandbox
	// sandboxCalls counts lists of sandboxes, which get no answer while hangs is true.
	sandboxCalls atomic.Int64
	hangs        bool
	stop         func()
}

func (s *criServer) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cri.ListContainersResponse{Containers: s.containers}, nil
}

// add adds a running container of a pod in namespace "ns".
func (s *criServer) add(id, pod, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = append(s.containers, &cri.Container{
		Id: id, State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: int64(len(s.containers)),
		Labels: map[string]string{labelNamespace: "ns", labelPod: pod, labelPodUID: "uid-of-" + pod, labelContainer: name},
	})
}

func (w *world) serveRuntime() {
	w.t.Helper()
	socket := filepath.Join(w.dir, "run/containerd/containerd.sock")
	require.NoError(w.t, os.MkdirAll(filepath.Dir(socket), 0o755))
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, w.runtime)
	w.runtime.stop = w.serve(socket, server)
}

func (w *world) serve(socket string, server *grpc.Server) (stop func()) {
	w.t.Helper()
	_ = os.Remove(socket)
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "unix", socket)
	require.NoError(w.t, err)
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(server.Stop)
	return server.Stop
}

// process creates or replaces a process in /proc.
func (w *world) process(pid int, start uint64, command, cgroup string) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "proc", strconv.Itoa(pid))
	require.NoError(w.t, os.MkdirAll(dir, 0o755))
	stat := fmt.Sprintf("%d (%s) S 1 7 7%s %d 0 0\n", pid, command, strings.Repeat(" 0", 15), start)
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+cgroup+"\n"), 0o600))
}

// file writes a file below /proc.
func (w *world) file(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "proc", name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(content), 0o600))
}

// id is a container id.
func id(digit string) string { return strings.Repeat(digit, idLength) }
