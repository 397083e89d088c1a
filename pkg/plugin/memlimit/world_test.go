package memlimit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook"
)

const (
	gpuA   = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	cgroup = "/kubepods/pod1/c1"
	share  = "uid-gpu-aaaaaaaa-timeslice-1"
)

// driver holds limits in memory. It may answer other than it was asked to.
type driver struct {
	mu         sync.Mutex
	limits     map[string]gpu.MemoryLimits // by GPU and directory
	sets, gets int
	err        error                                   // of setting
	changes    func(gpu.MemoryLimits) gpu.MemoryLimits // nil: none
}

func (d *driver) SetMemoryLimits(_ context.Context, id gpu.UUID, dir string, limits gpu.MemoryLimits) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sets++
	if d.err != nil {
		return d.err
	}
	if d.changes != nil {
		limits = d.changes(limits)
	}
	d.limits[string(id)+dir] = limits
	return nil
}

func (d *driver) MemoryLimits(_ context.Context, id gpu.UUID, dir string) (gpu.MemoryLimits, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gets++
	return d.limits[string(id)+dir], nil
}

// world is a node with one prepared claim and a container that starts.
type world struct {
	dir    string
	driver *driver
	opened error // why the driver is not open
	record *checkpoint.Record
	server Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "memlimit-") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{dir: dir, driver: &driver{limits: map[string]gpu.MemoryLimits{}}, record: prepared()}
	w.server = Server{
		Socket: filepath.Join(dir, "run", "hook.sock"),
		Record: func(uid string) (*checkpoint.Record, error) {
			if uid != w.record.Claim.UID {
				return nil, fmt.Errorf("record of claim %s: %w", uid, gpu.ErrNotFound)
			}
			return w.record, nil
		},
		Driver: func() (gpu.MemoryLimiter, error) { return w.driver, w.opened },
		Cgroup: func(path string) (string, error) {
			if !strings.HasPrefix(path, "/kubepods/") {
				return "", fmt.Errorf("%s: %w", path, gpu.ErrNotFound)
			}
			return "/sys/fs/cgroup" + path, nil
		},
	}
	w.hooks("uid")
	return w
}

// hooks sets the hooks of the next containers: one for the first device of each of these claims, and one of another program.
func (w *world) hooks(claims ...string) {
	type hook struct {
		Path string   `json:"path"`
		Args []string `json:"args"`
	}
	all := []hook{{"/usr/bin/other", []string{"other", "memory-limit", "--socket", w.server.Socket, "--claim", "uid3", "--device", share}}}
	for i, claim := range claims {
		args := []string{"prism-hook", "memory-limit", "--socket", w.server.Socket, "--claim", claim, "--device", share}
		all = append(all, hook{fmt.Sprintf("/var/lib/%d/prism-hook", i), args})
	}
	config, err := json.Marshal(map[string]any{"hooks": map[string]any{"createRuntime": all}})
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "config.json"), config, 0o600)
	}
	if err != nil {
		panic(err)
	}
}

// prepared is the record of a claim with a share that requested 4 GiB, one that requested nothing, a whole GPU, and a GPU with admin access.
func prepared() *checkpoint.Record {
	four := map[string]string{"memory": "4Gi", "shares": "1"}
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: "uid", Namespace: "ns", Name: "claim"}, State: checkpoint.Done,
		Results: []checkpoint.Result{
			{Device: "gpu-aaaaaaaa-timeslice", ShareID: "1", Type: gpu.TypeTimeSlice, GPUUUID: gpuA, Consumed: four},
			{Device: "gpu-aaaaaaaa-timeslice", ShareID: "2", Type: gpu.TypeTimeSlice, GPUUUID: gpuA, Consumed: map[string]string{"memory": "0"}},
			{Device: "gpu-bbbbbbbb", Type: gpu.TypeGPU, GPUUUID: "GPU-b", Consumed: four},
			{Device: "gpu-aaaaaaaa-timeslice", Type: gpu.TypeTimeSlice, GPUUUID: gpuA, Admin: true, Consumed: four},
			{Device: "gpu-aaaaaaaa-mps", ShareID: "3", Type: gpu.TypeMPS, GPUUUID: gpuA, Consumed: four},
			{Device: "gpu-cccccccc-timeslice", ShareID: "4", Type: gpu.TypeTimeSlice, GPUUUID: "GPU-c", Consumed: map[string]string{"memory": "much"}},
		},
		CDI: checkpoint.CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: []string{share, "uid-none", "uid-whole", "uid-admin", "uid-mps", "uid-unreadable"}},
	}
}

// serve runs a process until stop is called. It returns when the process owns the socket.
func (w *world) serve(t *testing.T) (stop func()) {
	t.Helper()
	before, _ := os.Stat(w.server.Socket)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	server := w.server
	go func() { done <- server.Run(ctx) }()
	require.Eventually(t, func() bool {
		now, err := os.Stat(w.server.Socket)
		return err == nil && (before == nil || !os.SameFile(before, now))
	}, time.Minute, time.Millisecond)
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// container starts a container in that cgroup as a runtime does.
func (w *world) container(t *testing.T, cgroup, claim, device string, retry time.Duration) error {
	t.Helper()
	proc := processIn(t, cgroup)
	return w.start(proc, pid, claim, device, retry)
}

// start runs the hook for a process.
func (w *world) start(proc string, pid int, claim, device string, retry time.Duration) error {
	return w.hook(proc, pid, retry).Run(w.arguments(claim, device))
}

// hook is the hook that a runtime runs for a process.
func (w *world) hook(proc string, pid int, retry time.Duration) hook.Program {
	state := fmt.Sprintf(`{"id": "c", "pid": %d, "bundle": %q}`, pid, w.dir)
	return hook.Program{Stdin: strings.NewReader(state), Proc: proc, RetryBudget: retry, Pause: time.Millisecond}
}

func (w *world) arguments(claim, device string) []string {
	return []string{"memory-limit", "--socket", w.server.Socket, "--claim", claim, "--device", device}
}

// pid is the process ID of the container.
const pid = 4711

// processIn returns a directory like /proc, with one process in the cgroup.
func processIn(t *testing.T, cgroup string) string {
	t.Helper()
	proc := filepath.Join(t.TempDir(), "proc")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, fmt.Sprint(pid)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(proc, fmt.Sprint(pid), "cgroup"), []byte("0::"+cgroup+"\n"), 0o600))
	return proc
}
