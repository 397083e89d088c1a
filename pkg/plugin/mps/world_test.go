package mps

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	uuidA   = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	daemonA = gpu.MPSDaemonID("aaaaaaaa")
	uuidMIG = "MIG-11111111-0000-4000-8000-000000000000"
	daemonM = gpu.MPSDaemonID("aaaaaaaa-mig-19-4")
)

// world is a node with an MPS service and a GPU. All of it can fail.
type world struct {
	mu sync.Mutex
	// daemons are the daemons that the service knows, revision counts their changes; changed wakes those that wait for one.
	daemons  map[gpu.MPSDaemonID]*gpu.MPSDaemon
	revision int64
	changed  chan struct{}
	limits   map[gpu.MPSDaemonID]gpu.MPSLimitsInForce
	nextPID  int
	clients  []int
	// singleUser: the driver lacks a server for all users.
	singleUser bool
	// down is why the service does not answer; mute: it does not answer to a call that it has done.
	down error
	mute bool
	// older: the service is of a version that does not know devices without claims.
	older bool
	// problem is why the service can start no daemon.
	problem string
	// failing are the errors of single calls, of the service and of the driver.
	failing map[string]error
	modes   map[string]gpu.ComputeMode
	mig     []gpu.Instance
	load    string
	// calls are the calls of the service and of the driver, in their order.
	calls []string
	dir   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		daemons: map[gpu.MPSDaemonID]*gpu.MPSDaemon{}, revision: 1, changed: make(chan struct{}), limits: map[gpu.MPSDaemonID]gpu.MPSLimitsInForce{},
		nextPID: 100, failing: map[string]error{}, modes: map[string]gpu.ComputeMode{string(uuidA): gpu.ComputeDefault}, load: "load-1", dir: t.TempDir(),
	}
}

// set changes the world from a test.
func (w *world) set(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
	w.change()
}

// change wakes listings. mu is held.
func (w *world) change() {
	w.revision++
	close(w.changed)
	w.changed = make(chan struct{})
}

// since are the calls since the last time.
func (w *world) since() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// enter begins a call. mu is held.
func (w *world) enter(ctx context.Context, call string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.calls = append(w.calls, call)
	if w.down != nil {
		return fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, w.down)
	}
	return w.failing[call]
}

// leave ends a call that was done. mu is held.
func (w *world) leave() error {
	w.change()
	if w.mute {
		w.down, w.mute = fmt.Errorf("killed"), false
		return fmt.Errorf("%w: unexpected EOF", gpu.ErrMPSUnavailable)
	}
	return nil
}

func (w *world) Daemons(ctx context.Context, after int64) ([]gpu.MPSDaemon, int64, error) {
	for {
		w.mu.Lock()
		err, changed := w.enter(ctx, "list"), w.changed
		if err != nil || w.revision > after {
			list := make([]gpu.MPSDaemon, 0, len(w.daemons))
			for _, id := range slices.Sorted(maps.Keys(w.daemons)) {
				list = append(list, *w.daemons[id])
			}
			w.mu.Unlock()
			return list, w.revision, err
		}
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// Probe is not among the calls: the watcher makes it with each listing.
func (w *world) Probe(ctx context.Context) (problem string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return "", fmt.Errorf("%w: %w", gpu.ErrMPSUnavailable, w.down)
	}
	return w.problem, ctx.Err()
}

func (w *world) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enter(ctx, "start"); err != nil {
		return gpu.MPSDaemon{}, err
	}
	return *w.run(id, spec), w.leave()
}

// StartNew behaves like a service of this version; an older one keeps a daemon that runs, and its files.
func (w *world) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enter(ctx, "new"); err != nil {
		return gpu.MPSDaemon{}, err
	}
	if d := w.daemons[id]; d != nil && !w.older && (d.Spec != spec || len(d.Servers) > 0) {
		if len(w.clients) > 0 {
			return gpu.MPSDaemon{}, &gpu.MPSClientsError{PIDs: w.clients}
		}
		delete(w.daemons, id)
	}
	return *w.run(id, spec), w.leave()
}

// run runs a daemon. mu is held.
func (w *world) run(id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) *gpu.MPSDaemon {
	d := w.daemons[id]
	if d == nil || d.State != gpu.MPSRunning || d.Outdated && len(w.clients) == 0 {
		w.nextPID++
		before := cmp.Or(d, &gpu.MPSDaemon{})
		d = &gpu.MPSDaemon{ID: id, Spec: spec, State: gpu.MPSRunning, PID: w.nextPID, MultiUser: !w.singleUser, LastExit: before.Error}
		w.daemons[id] = d
		limits := gpu.MPSLimits{MemoryMiB: spec.MemoryMiB, ActiveThreadPercentage: float64(spec.ActiveThreadPercentage)}
		if limits.MemoryMiB >= 1024 {
			limits.MemoryMiB -= limits.MemoryMiB % 1024
		}
		w.limits[id] = gpu.MPSLimitsInForce{Default: limits}
	}
	return d
}

func (w *world) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enter(ctx, "ensure"); err != nil {
		return gpu.MPSDaemon{}, err
	}
	d := w.run(id, spec)
	if mode, has := w.modes[spec.Device]; has && mode == gpu.ComputeProhibited {
		return gpu.MPSDaemon{}, fmt.Errorf("the MPS server did not start: the compute mode is %s", mode)
	}
	d.Servers = []int{d.PID + 1000}
	return *d, w.leave()
}

func (w *world) RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enter(ctx, "restore"); err != nil {
		return err
	}
	w.limits[id] = gpu.MPSLimitsInForce{Default: gpu.MPSLimits{MemoryMiB: spec.MemoryMiB, ActiveThreadPercentage: float64(spec.ActiveThreadPercentage)}}
	return w.leave()
}

func (w *world) Limits(ctx context.Context, id gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limits[id], w.enter(ctx, "limits")
}

func (w *world) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enter(ctx, "stop"); err != nil {
		return err
	}
	if len(w.clients) > 0 {
		return &gpu.MPSClientsError{PIDs: w.clients}
	}
	delete(w.daemons, id)
	return w.leave()
}

// process finds the processes of daemons; the processes of a daemon that died are gone.
func (w *world) process(pid int) (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.daemons {
		if d.PID == pid && d.State != gpu.MPSDead {
			return uint64(pid) * 10, true
		}
	}
	return 0, false
}

// exit makes the daemon die.
func (w *world) exit(id gpu.MPSDaemonID) {
	w.set(func() { w.daemons[id].State, w.daemons[id].Error = gpu.MPSDead, "exit status 1" })
}

// driver is the open driver of the world.
type driver struct {
	gpu.MIGDriver
	*world
}

func (d driver) ComputeMode(_ context.Context, device string) (gpu.ComputeMode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, "mode")
	if err := d.failing["mode"]; err != nil {
		return "", err
	}
	mode, has := d.modes[device]
	if !has {
		return "", gpu.ErrNotFound
	}
	return mode, nil
}

func (d driver) SetComputeMode(ctx context.Context, device string, mode gpu.ComputeMode) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, string(mode))
	if err := d.failing["set"]; err != nil {
		return err
	}
	if _, has := d.modes[device]; !has {
		return gpu.ErrNotFound
	}
	d.modes[device] = mode
	return nil
}

func (d driver) Instances(context.Context, gpu.UUID) ([]gpu.Instance, error) { return d.mig, nil }

// service returns the Service of a process of that boot.
func (w *world) service(boot string) *Service {
	return &Service{
		Daemons: w, Modes: func() (gpu.ComputeModes, error) { return driver{world: w}, w.failing["driver"] },
		Store: NewStore(disk.OS{}, w.dir, boot), Load: func() string { return w.load }, Process: w.process, Counts: &Counts{},
		Watcher: NewWatcher(w),
	}
}

func (w *world) step() Step {
	return Step{
		Service: w.service("boot-1"), MIG: func() (gpu.MIGDriver, error) { return driver{world: w}, w.failing["driver"] },
		Needed: func() bool { return true }, Dir: "/run/gpu.prism.dev/mps",
		Hook: func(args ...string) *specs.Hook {
			return &specs.Hook{HookName: "createRuntime", Path: "/prism-hook", Args: args}
		},
	}
}

// files are the names of the store's files.
func (w *world) files(t *testing.T) []string {
	t.Helper()
	names, err := disk.OS{}.List(filepath.Join(w.dir, "mps"))
	require.NoError(t, err)
	return names
}

func (w *world) mode(device string) gpu.ComputeMode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.modes[device]
}

// use is a step of a share of the GPU.
func use(memory int64, threads int) checkpoint.Step {
	args, _ := json.Marshal(claim.MPS{
		MPSUse:  claim.MPSUse{Daemon: daemonA, MemoryMiB: memory, ActiveThreadPercentage: threads},
		Default: claim.MPSDefaults{MemoryMiB: 20480, ActiveThreadPercentage: 50, ShmBytes: 1 << 30},
	})
	return checkpoint.Step{Kind: claim.StepMPS, Target: uuidA, Device: "gpu-aaaaaaaa-mps", ShareID: "s", Args: args}
}

// useMIG is a step on a MIG device.
func useMIG() checkpoint.Step {
	args, _ := json.Marshal(claim.MPS{
		MPSUse: claim.MPSUse{Daemon: daemonM}, Default: claim.MPSDefaults{ShmBytes: 1 << 30},
		MIG: &claim.MIG{Profile: 19, Name: "1g.10gb", Placement: gpu.Placement{Start: 4, Size: 1}},
	})
	return checkpoint.Step{Kind: claim.StepMPS, Target: uuidA, Device: "gpu-aaaaaaaa-mig-19-4", Args: args}
}

// withMIG puts the MIG device of useMIG on the GPU.
func (w *world) withMIG() {
	w.mig = []gpu.Instance{
		{ID: 1, Profile: 19, Placement: gpu.Placement{Start: 0, Size: 1}, Compute: []gpu.ComputeInstance{{UUID: "MIG-0"}}},
		{ID: 2, Profile: 19, Placement: gpu.Placement{Start: 4, Size: 1}, Compute: []gpu.ComputeInstance{{UUID: uuidMIG}}},
	}
}

// last is the step of the last share.
func last(s checkpoint.Step) checkpoint.Step {
	s.Last = true
	return s
}

// writeFile puts a file into the store's directory.
func (w *world) writeFile(t *testing.T, id gpu.MPSDaemonID, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(w.dir, "mps"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "mps", string(id)+".json"), []byte(content), 0o600))
}
