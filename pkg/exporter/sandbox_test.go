package exporter_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/exporter"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const (
	childFlags = "PRISM_TEST_EXPORTER"
	driverName = "gpu.prism.dev"
	cdiKind    = "k8s.gpu.prism.dev/claim"
	boot       = "5f1c1b9e-0000-4000-8000-000000000000"
	waitLimit  = 60 * time.Second
)

// TestMain also runs as the exporter of these tests, which binds the simulated library; the test's own process must not bind it.
func TestMain(m *testing.M) {
	flags := os.Getenv(childFlags)
	if flags == "" {
		os.Exit(sandbox.OnGPUMachine(m))
	}
	if err := runChild(strings.Split(flags, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runChild runs until its input ends, and prints the addresses on which it serves.
func runChild(args []string) error {
	cfg, err := config.LoadExporter(args, func(string) string { return "" })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	adapters, err := exporter.System(ctx, cfg, "v1.2.3")
	if err != nil {
		return err
	}
	adapters.Listening = func(at net.Addr) { fmt.Println(at) }
	e, err := exporter.Build(cfg, adapters)
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// world is a node with a simulated driver, a record of the plugin, a kubelet and a running exporter.
type world struct {
	t       *testing.T
	node    *sandbox.Node
	dir     string
	address string
}

func newWorld(t *testing.T, spec model.Spec) *world {
	t.Helper()
	w := &world{t: t, node: sandbox.Start(t, spec)}
	dir, err := os.MkdirTemp("", "exporter-") // not t.TempDir: a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.dir = dir
	w.write(filepath.Join(w.node.Root(), "proc/sys/kernel/random/boot_id"), boot+"\n")
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
}

// prepared records a claim for a whole GPU, allocated to container "main" of pod "team/trainer"; options are the claim's, nil for none.
func (w *world) prepared(id gpu.UUID, options *gpu.MetricsOptions) {
	w.t.Helper()
	store, err := checkpoint.Open(disk.OS{}, filepath.Join(w.dir, "plugins", driverName))
	require.NoError(w.t, err)
	record := &checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid-1", Namespace: "team", Name: "trainer-gpu"}, BootID: boot, State: checkpoint.Done,
		Results: []checkpoint.Result{{
			Request: "gpu", Pool: "node-a", Device: "gpu-0", Type: gpu.TypeGPU, GPUUUID: id,
		}},
		CDI: checkpoint.CDI{Kind: cdiKind, Devices: []string{"uid-1-gpu-0"}},
	}
	if options != nil {
		require.NoError(w.t, record.Results[0].Extensions.Set(claim.KindMetrics, options))
	}
	require.NoError(w.t, store.Put(record))
}

type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	claim := &podresources.DynamicResource{ClaimNamespace: "team", ClaimName: "trainer-gpu", ClaimResources: []*podresources.ClaimResource{{
		DriverName: driverName, PoolName: "node-a", DeviceName: "gpu-0", CdiDevices: []*podresources.CDIDevice{{Name: cdiKind + "=uid-1-gpu-0"}},
	}}}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "team", Name: "trainer",
		Containers: []*podresources.ContainerResources{{Name: "main", DynamicResources: []*podresources.DynamicResource{claim}}},
	}}}, nil
}

func (w *world) serveKubelet() {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "unix", filepath.Join(w.dir, "kubelet.sock"))
	require.NoError(w.t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet{})
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(server.Stop)
}

// run starts the exporter and waits until it serves. The returned function waits until the exporter exits.
func (w *world) run(flags ...string) (ended func() error) {
	w.t.Helper()
	self, err := os.Executable()
	require.NoError(w.t, err)
	args := append([]string{
		"--host-root=" + w.node.Root(), "--kubelet-plugins-dir=" + filepath.Join(w.dir, "plugins"), "--run-dir=" + filepath.Join(w.dir, "run"),
		"--kubelet-pod-resources-socket=" + filepath.Join(w.dir, "kubelet.sock"), "--node-name=node-a", "--http-endpoint=127.0.0.1:0", "--probe-endpoint=",
		"--interval=200ms", "--min-interval=100ms",
	}, flags...)
	child := exec.CommandContext(context.Background(), self)
	child.Env = append(os.Environ(), childFlags+"="+strings.Join(args, "\n"))
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := child.StdinPipe()
	require.NoError(w.t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, child.Start())
	lines := bufio.NewScanner(stdout)
	require.True(w.t, lines.Scan(), "the exporter serves nothing")
	w.address = lines.Text()
	exited := make(chan error, 1)
	go func() {
		for lines.Scan() {
		}
		exited <- child.Wait()
	}()
	w.t.Cleanup(func() { _ = stdin.Close() })
	return func() error {
		select {
		case err := <-exited:
			return err
		case <-time.After(waitLimit):
			_ = child.Process.Kill()
			return fmt.Errorf("the exporter still runs after %s", waitLimit)
		}
	}
}

func (w *world) get(path, accept string) (int, http.Header, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.address+path, http.NoBody)
	require.NoError(w.t, err)
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, response.Header, string(body)
}

// page waits until a page contains the text, and returns it.
func (w *world) page(path, text string) string {
	w.t.Helper()
	var page string
	require.Eventually(w.t, func() bool {
		_, _, page = w.get(path, "")
		return strings.Contains(page, text)
	}, waitLimit, 20*time.Millisecond, "%s has no %s", path, text)
	return page
}

// line returns the line of a page with the prefix.
func line(page, prefix string) string {
	for l := range strings.Lines(page) {
		if strings.HasPrefix(l, prefix) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// TestExporter_SimulatedNode_PagesNameThePod runs the exporter of a node like the image, from records and driver to HTTP.
func TestExporter_SimulatedNode_PagesNameThePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Uniform("node-a", "h100-80", 2))
	id := gpu.UUID(w.node.Model.Identities()[0].UUID)
	w.prepared(id, nil)
	w.serveKubelet()
	claims := filepath.Join(w.dir, "run/metrics/uid-1")
	require.NoError(t, os.MkdirAll(claims, 0o755))
	ended := w.run()
	_, _, body := w.get("/healthz", "")
	assert.Equal(t, "ok\n", body)

	page := w.page("/metrics", `prism_container_gpu_memory_used_bytes{namespace="team",pod="trainer",container="main"`)
	assert.Contains(t, line(page, "prism_gpu_allocation_info{"), `claim="trainer-gpu"`)
	assert.Equal(t, fmt.Sprintf("prism_gpu_up{gpu_uuid=%q} 1", id), line(page, fmt.Sprintf("prism_gpu_up{gpu_uuid=%q}", id)))
	assert.Contains(t, line(page, "prism_exporter_build_info{"), "v1.2.3")

	page = w.page("/metrics/dcgm", `pod="trainer"`)
	assert.Contains(t, page, "DCGM_FI_DEV_GPU_UTIL{")
	assert.Contains(t, page, `Hostname="node-a"`)

	code, header, body := w.get("/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "application/openmetrics-text; version=1.0.0; charset=utf-8", header.Get("Content-Type"))
	assert.True(t, strings.HasSuffix(body, "# EOF\n"))
	_, header, _ = w.get("/metrics/dcgm", "application/openmetrics-text;version=1.0.0")
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", header.Get("Content-Type"))

	code, _, body = w.get("/readyz", "")
	assert.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "cri: ", "what is missing is named: this node has no container runtime")
	assert.NotContains(t, body, "records: ")
	_ = ended
}

// TestExporter_NarrowSets_DefaultCountersStay: without a CSV, /metrics/dcgm shows dcgm-exporter's default counters with any sets of the
// node.
func TestExporter_NarrowSets_DefaultCountersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Uniform("node-a", "h100-80", 1))
	w.serveKubelet()
	w.run("--sets=" + gpu.MetricsUtilization)
	page := w.page("/metrics/dcgm", "DCGM_FI_PROF_SM_ACTIVE{")
	for _, f := range metrics.DCGMFields() {
		has := f.Default
		for _, field := range f.Fields {
			row := &metrics.Table[field]
			has = has && row.On(metrics.Hopper) && row.Where == ""
		}
		if has && f.Name != "DCGM_EXP_XID_ERRORS_COUNT" {
			assert.Contains(t, page, "\n"+f.Name+"{")
		}
	}
	assert.Contains(t, page, "DCGM_EXP_CLOCK_EVENTS_COUNT{", "the simulated GPU idles")
	assert.NotContains(t, page, "DCGM_FI_DEV_FAN_SPEED{", "only a CSV chooses it")
}

// TestExporter_OptionsOfClaimAndCounters_Measured: fields that a claim and a file of counters select beyond the node's sets are sampled,
// and the claim's file is written.
func TestExporter_OptionsOfClaimAndCounters_Measured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Uniform("node-a", "h100-80", 1))
	id := gpu.UUID(w.node.Model.Identities()[0].UUID)
	w.prepared(id, &gpu.MetricsOptions{Sets: []string{gpu.MetricsPCIe}, ExposeInContainer: true})
	w.serveKubelet()
	exposed := filepath.Join(w.dir, "run/metrics/uid-1")
	require.NoError(t, os.MkdirAll(exposed, 0o755))
	counters := filepath.Join(w.dir, "counters.csv")
	w.write(counters, `DCGM_FI_DEV_VIDEO_CLOCK, gauge, Clock of the video engines.
DCGM_FI_NVML_VERSION, label, Version of the library.
DCGM_FI_DEV_OEM_INFOROM_VER, label, Version of the OEM object.
DCGM_FI_DEV_ECC_INFOROM_VER, label, Version of the ECC object.
DCGM_FI_DEV_POWER_INFOROM_VER, label, Version of the power object.
`)
	w.run("--counters=" + counters)
	w.page("/metrics", "prism_gpu_pcie_link_generation{")
	clock := line(w.page("/metrics/dcgm", "DCGM_FI_DEV_VIDEO_CLOCK{"), "DCGM_FI_DEV_VIDEO_CLOCK{")
	for _, label := range []string{"NVML_VERSION", "DEV_OEM_INFOROM_VER", "DEV_ECC_INFOROM_VER"} {
		assert.Regexp(t, `DCGM_FI_`+label+`="[^"]+"`, clock)
	}
	assert.Contains(t, clock, `DCGM_FI_DEV_POWER_INFOROM_VER=""`, "this GPU has no such object")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(exposed, "gpu.prom"))
		return err == nil && strings.Contains(string(text), "prism_gpu_up{")
	}, waitLimit, 20*time.Millisecond, "the claim's file is not written")
}

// TestExporter_GPUsReleased_CanBeReset: while the plugin has released the GPUs, the exporter serves pages and has no session.
func TestExporter_GPUsReleased_CanBeReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Uniform("node-a", "h100-80", 2))
	w.prepared(gpu.UUID(w.node.Model.Identities()[0].UUID), nil)
	w.run()
	w.page("/metrics", "prism_gpu_power_usage_watts{")
	require.ErrorIs(t, w.node.Model.ResetDetachedGPU(1), model.InUse)
	file := filepath.Join(w.dir, "plugins", driverName, maintenance.ReleasedFile)
	until := time.Now().Add(maintenance.ReleaseDefault)
	require.NoError(t, disk.Replace(disk.OS{}, file, maintenance.NewReleased(until).Encode(), 0o600, true))
	require.Eventually(t, func() bool { return w.node.Model.ResetDetachedGPU(1) == nil }, waitLimit, 20*time.Millisecond, "the session stays open")
	page := w.page("/metrics", "prism_exporter_gpus_released 1")
	assert.NotContains(t, page, "\nprism_gpu_up{")
	assert.NotContains(t, page, "\nprism_gpu_power_usage_watts{")
	code, _, body := w.get("/readyz", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "GPUs released for maintenance until ")
	require.NoError(t, os.Remove(file))
	w.page("/metrics", "\nprism_gpu_power_usage_watts{")
}
