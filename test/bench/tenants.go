package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/test/simgpu/layout"
)

// tenantsOfDevice is the number of containers that share the device of a claim.
const tenantsOfDevice = 2

// tenants are pods with claims, as kubelet and container runtime list them. In each container, a process works on a GPU.
type tenants struct {
	podresources.UnimplementedPodResourcesListerServer
	cri.UnimplementedRuntimeServiceServer

	// socket serves both lists.
	socket string
	second *Second
	// load is the program of the processes; library is the directory of the simulated driver.
	load, library string
	server        *grpc.Server
	ended         chan error

	mu         sync.Mutex
	pods       []*podresources.PodResources
	containers []*cri.Container
	processes  []*exec.Cmd
	cgroups    []string
}

// serveTenants serves the lists until close.
func (b *bencher) serveTenants(ctx context.Context, s *Second) (*tenants, error) {
	t := &tenants{
		socket: filepath.Join(s.Dir, "tenants.sock"), second: s, load: b.Load, library: filepath.Join(b.SimgpuRoot, layout.LibDir()),
		server: grpc.NewServer(), ended: make(chan error, 1),
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", t.socket)
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	podresources.RegisterPodResourcesListerServer(t.server, t)
	cri.RegisterRuntimeServiceServer(t.server, t)
	go func() { t.ended <- t.server.Serve(l) }()
	return t, nil
}

// close stops all processes and the server.
func (t *tenants) close() error {
	t.server.Stop()
	return errors.Join(t.leave(), <-t.ended)
}

// List answers as the kubelet.
func (t *tenants) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: t.pods}, nil
}

// ListContainers answers as the container runtime.
func (t *tenants) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &cri.ListContainersResponse{Containers: t.containers}, nil
}

// enter prepares a claim for each of the devices, and creates a pod with containers for each.
func (t *tenants) enter(ctx context.Context, devices []Device) ([]Claim, error) {
	claims, err := t.second.Claims.Make(ctx, len(devices), devices)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(t.second.Plugin.Prepare(ctx, claims...), t.second.Claims.Reported(ctx, claims...)); err != nil {
		return nil, err
	}
	records, err := checkpoint.Open(disk.OS{}, filepath.Dir(t.second.recordsDir()))
	if err != nil {
		return nil, err
	}
	for i, claim := range claims {
		record, err := records.Load(claim.UID)
		if err != nil {
			return nil, err
		}
		of := string(record.Results[0].GPUUUID)
		if mig := record.Results[0].MIG; mig != nil {
			of = string(mig.Identity.UUID)
		}
		if err := t.run(ctx, claim, devices[i], of); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// run adds a pod that uses the claim.
func (t *tenants) run(ctx context.Context, claim Claim, device Device, uuid string) error {
	pod := &podresources.PodResources{Namespace: claim.Namespace, Name: "pod-of-" + claim.Name}
	resource := &podresources.DynamicResource{ClaimNamespace: claim.Namespace, ClaimName: claim.Name, ClaimResources: []*podresources.ClaimResource{{
		DriverName: t.second.Driver, PoolName: device.Pool, DeviceName: device.Name,
		CdiDevices: []*podresources.CDIDevice{{Name: checkpoint.CDIKind(t.second.Driver) + "=" + claim.UID + "-gpu"}},
	}}}
	for i := range tenantsOfDevice {
		name := fmt.Sprintf("worker-%d", i)
		// Container ids have 64 hexadecimal digits, claim ids 32.
		id := strings.ReplaceAll(claim.UID, "-", "") + fmt.Sprintf("%032x", i)
		if err := t.start(ctx, id, uuid); err != nil {
			return err
		}
		pod.Containers = append(pod.Containers, &podresources.ContainerResources{Name: name, DynamicResources: []*podresources.DynamicResource{resource}})
		t.mu.Lock()
		t.containers = append(t.containers, &cri.Container{Id: id, State: cri.ContainerState_CONTAINER_RUNNING, Labels: map[string]string{
			"io.kubernetes.pod.namespace": claim.Namespace, "io.kubernetes.pod.name": pod.Name,
			"io.kubernetes.pod.uid": claim.UID, "io.kubernetes.container.name": name,
		}})
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods = append(t.pods, pod)
	return nil
}

// start runs the process of a container, and returns when it works on the GPU.
func (t *tenants) start(ctx context.Context, container, uuid string) error {
	cgroup := filepath.Join(cgroupRoot(), "prism-bench-"+container)
	if err := os.Mkdir(cgroup, 0o750); err != nil {
		return fmt.Errorf("creating the cgroup of a container: %w", err)
	}
	t.cgroups = append(t.cgroups, cgroup)
	work := exec.CommandContext(ctx, t.load, "--memory", "1Gi", "--sm", "30")
	work.Env = []string{"LD_LIBRARY_PATH=" + t.library, "CUDA_VISIBLE_DEVICES=" + uuid}
	work.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := work.StdoutPipe()
	if err == nil {
		err = work.Start()
	}
	if err != nil {
		return fmt.Errorf("starting the process of a container: %w", err)
	}
	t.processes = append(t.processes, work)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "working") {
		return fmt.Errorf("starting the process of a container: %q: %w", line, err)
	}
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, work.Process.Pid), 0o600); err != nil {
		return fmt.Errorf("moving a process to the cgroup of its container: %w", err)
	}
	return nil
}

// cgroupRoot returns a cgroup hierarchy in which no limits are in use here.
func cgroupRoot() string {
	const v1 = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(v1); err == nil {
		return v1
	}
	return "/sys/fs/cgroup"
}

// leave stops the processes of all containers.
func (t *tenants) leave() error {
	t.mu.Lock()
	t.pods, t.containers = nil, nil
	t.mu.Unlock()
	var failed []error
	for _, process := range t.processes {
		failed = append(failed, process.Process.Kill())
		_ = process.Wait() // always reports that it was killed
	}
	for _, cgroup := range t.cgroups {
		failed = append(failed, os.Remove(cgroup))
	}
	t.processes, t.cgroups = nil, nil
	return errors.Join(failed...)
}
