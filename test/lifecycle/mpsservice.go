package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// mpsService is the MPS service of a machine with the control daemons, their servers and their clients. All of them outlive the plugin's
// processes, and none outlives a boot. The zero value knows no GPUs.
type mpsService struct {
	node *model.Node

	mu       sync.Mutex
	daemons  map[gpu.MPSDaemonID]*mpsDaemon
	revision int64
	// waiting are the listings that wait for a change.
	waiting map[chan struct{}]bool
	// down: it does not answer. singleUser: the driver supports no server for all users.
	down, singleUser bool
	pids             int
	// disturbed: daemons have died, or a mode was forgotten, and no reconciler has acted since.
	disturbed bool
	// reconciling: a reconciler acts.
	reconciling bool
	// kept are the daemons whose directories, with the files of their clients, outlive them.
	kept map[gpu.MPSDaemonID]bool
	// stuck are the claims whose containers do not exit.
	stuck map[string]bool
	// ended reports whether the process was killed, or a fault point failed; nil for a process without kills and faults.
	ended func() bool
	// wrong are the violations that only the service sees.
	wrong []error
}

// mpsDaemon is a control daemon.
type mpsDaemon struct {
	gpu.MPSDaemon
	limits gpu.MPSLimits
	// clients are the connected processes by pid, with the UIDs of their claims.
	clients map[int]string
	// hung: one of its processes does not exit when it is killed.
	hung bool
}

// listingTime is how long a listing waits for a change.
const listingTime = 30 * time.Second

// restart simulates a reboot: nothing runs.
func (s *mpsService) restart() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemons, s.kept, s.stuck = map[gpu.MPSDaemonID]*mpsDaemon{}, map[gpu.MPSDaemonID]bool{}, map[string]bool{}
	s.down, s.disturbed, s.reconciling, s.singleUser, s.wrong = false, false, false, false, nil
}

// countPIDs sets the pid after which the next process is numbered.
func (s *mpsService) countPIDs(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids = pid
}

// change changes the state and wakes the listings.
func (s *mpsService) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	s.changed()
}

func (s *mpsService) changed() {
	s.revision++
	for waits := range s.waiting {
		close(waits)
		delete(s.waiting, waits)
	}
}

// answers returns the error of a service that does not answer, or of a call that has ended.
func (s *mpsService) answers(ctx context.Context) error {
	if s.down {
		return fmt.Errorf("connection refused: %w", gpu.ErrMPSUnavailable)
	}
	return ctx.Err()
}

// Probe reports whether it answers.
func (s *mpsService) Probe(ctx context.Context) (problem string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "", s.answers(ctx)
}

// Daemons lists the daemons.
func (s *mpsService) Daemons(ctx context.Context, after int64) (daemons []gpu.MPSDaemon, revision int64, err error) {
	deadline := time.After(listingTime)
	for {
		s.mu.Lock()
		if err := s.answers(ctx); err != nil || after <= 0 || s.revision > after {
			defer s.mu.Unlock()
			return s.list(), s.revision + 1, err
		}
		waits := make(chan struct{})
		s.waiting[waits] = true
		s.mu.Unlock()
		select {
		case <-waits:
		case <-deadline:
			after = 0
		case <-ctx.Done():
		}
		s.mu.Lock()
		delete(s.waiting, waits)
		s.mu.Unlock()
	}
}

func (s *mpsService) list() (daemons []gpu.MPSDaemon) {
	for _, id := range slices.Sorted(maps.Keys(s.daemons)) {
		daemons = append(daemons, s.daemons[id].MPSDaemon)
	}
	return daemons
}

// Start runs the control daemon without a server.
func (s *mpsService) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, id, spec, false)
}

// StartNew runs the control daemon of a device that no claim uses: no files of an earlier daemon are kept.
func (s *mpsService) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	s.mu.Lock()
	if d := s.daemons[id]; d == nil || d.State != gpu.MPSUnstoppable && (d.Spec != spec || len(d.Servers) > 0) && len(d.clients) == 0 {
		delete(s.daemons, id)
		delete(s.kept, id)
	}
	s.mu.Unlock()
	return s.run(ctx, id, spec, false)
}

// Ensure runs the control daemon and its server.
func (s *mpsService) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, id, spec, true)
}

func (s *mpsService) run(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, server bool) (gpu.MPSDaemon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answers(ctx); err != nil {
		return gpu.MPSDaemon{}, err
	}
	d := s.daemons[id]
	if d != nil && d.State == gpu.MPSUnstoppable {
		return gpu.MPSDaemon{}, unstoppable(d)
	}
	if d == nil || d.State == gpu.MPSDead || d.Outdated && len(d.clients) == 0 {
		d = s.start(id, spec)
	}
	if server && len(d.Servers) == 0 {
		if err := s.startServer(d); err != nil {
			return gpu.MPSDaemon{}, err
		}
	}
	return d.MPSDaemon, nil
}

func (s *mpsService) start(id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) *mpsDaemon {
	for other, d := range s.daemons {
		if other != id && d.State == gpu.MPSRunning && d.Spec.Device == spec.Device {
			s.wrong = append(s.wrong, fmt.Errorf("%s is shared by the daemons %s and %s", spec.Device, other, id))
		}
	}
	before := s.daemons[id]
	if mode, has := s.mode(spec.Device); s.reconciling && (before == nil || before.State == gpu.MPSDead) && has && mode != model.ComputeProhibited {
		s.wrong = append(s.wrong, fmt.Errorf("%s is started again while the compute mode of %s is %d", id, spec.Device, mode))
	}
	s.pids++
	starts := 1
	if before != nil {
		starts = before.Starts + 1
	}
	d := &mpsDaemon{
		MPSDaemon: gpu.MPSDaemon{ID: id, Spec: spec, State: gpu.MPSRunning, PID: s.pids, MultiUser: !s.singleUser, Starts: starts},
		limits:    gpu.MPSLimits{MemoryMiB: spec.MemoryMiB, ActiveThreadPercentage: float64(spec.ActiveThreadPercentage)}, clients: map[int]string{},
	}
	s.daemons[id] = d
	s.changed()
	return d
}

// startServer starts the server, which needs a context on the device.
func (s *mpsService) startServer(d *mpsDaemon) error {
	switch mode, has := s.mode(d.Spec.Device); {
	case !has:
	case mode == model.ComputeProhibited:
		return fmt.Errorf("the server of %s got no context: %w", d.ID, gpu.ErrInUse)
	case mode == model.ComputeDefault && (s.reconciling || !s.disturbed):
		s.wrong = append(s.wrong, fmt.Errorf("the server of %s starts while other processes may use %s", d.ID, d.Spec.Device))
	}
	s.pids++
	d.Servers = []int{s.pids}
	s.changed()
	return nil
}

// mode returns the compute mode of a GPU; MIG devices have none.
func (s *mpsService) mode(device string) (mode model.ComputeMode, has bool) {
	for _, g := range s.node.GPUs() {
		if g.UUID == device {
			return g.ComputeMode, true
		}
	}
	return 0, false
}

// RestoreLimits sets the limits.
func (s *mpsService) RestoreLimits(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.running(ctx, id)
	if err == nil {
		d.limits = gpu.MPSLimits{MemoryMiB: spec.MemoryMiB, ActiveThreadPercentage: float64(spec.ActiveThreadPercentage)}
	}
	return err
}

// Limits reads the limits.
func (s *mpsService) Limits(ctx context.Context, id gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.running(ctx, id)
	if err != nil {
		return gpu.MPSLimitsInForce{}, err
	}
	rounded := d.limits
	if rounded.MemoryMiB >= 1024 {
		rounded.MemoryMiB -= rounded.MemoryMiB % 1024
	}
	limits := gpu.MPSLimitsInForce{Default: rounded, Servers: map[int]gpu.MPSLimits{}}
	for _, pid := range d.Servers {
		limits.Servers[pid] = rounded
	}
	return limits, nil
}

func (s *mpsService) running(ctx context.Context, id gpu.MPSDaemonID) (*mpsDaemon, error) {
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	if d := s.daemons[id]; d != nil && d.State == gpu.MPSRunning {
		return d, nil
	}
	return nil, fmt.Errorf("MPS control daemon %s: %w", id, gpu.ErrNotFound)
}

// Stop stops the daemon, unless clients are connected or one of its processes cannot be killed.
func (s *mpsService) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answers(ctx); err != nil {
		return err
	}
	d := s.daemons[id]
	switch {
	case d == nil:
		delete(s.kept, id)
		return nil
	case len(d.clients) > 0:
		return &gpu.MPSClientsError{PIDs: slices.Sorted(maps.Keys(d.clients))}
	case d.hung:
		d.State = gpu.MPSUnstoppable
		s.changed()
		return unstoppable(d)
	}
	delete(s.daemons, id)
	delete(s.kept, id)
	s.changed()
	return nil
}

func unstoppable(d *mpsDaemon) error {
	return fmt.Errorf("pid %d was killed and does not exit: %w", d.PID, gpu.ErrInUse)
}

// hang keeps the servers from exiting when they are killed, until they exit.
func (s *mpsService) hang() { s.hung(true) }

func (s *mpsService) exit() { s.hung(false) }

func (s *mpsService) hung(hung bool) {
	s.change(func() {
		for _, d := range s.daemons {
			if d.hung = hung; !hung && d.State == gpu.MPSUnstoppable {
				d.State = gpu.MPSDead
			}
		}
	})
}

// takeLimits simulates a process that can reach the daemons and removes their limits.
func (s *mpsService) takeLimits() {
	s.change(func() {
		s.disturbed = true
		for _, d := range s.daemons {
			d.limits = gpu.MPSLimits{}
		}
	})
}

// process reports whether a process with that pid runs. Its start is its pid.
func (s *mpsService) process(pid int) (started uint64, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.daemons {
		if pid > 0 && d.State != gpu.MPSDead && (d.PID == pid || slices.Contains(d.Servers, pid)) {
			return uint64(pid), true
		}
	}
	return 0, false
}

// hasDir reports whether the directory of the daemon with that id exists.
func (s *mpsService) hasDir(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.daemons[gpu.MPSDaemonID(id)] != nil || s.kept[gpu.MPSDaemonID(id)]
}

// die kills all daemons with their servers, so that their clients lose their contexts.
func (s *mpsService) die() {
	s.change(func() {
		s.disturbed = true
		for _, d := range s.daemons {
			d.State, d.Servers, d.clients, d.Error = gpu.MPSDead, nil, map[int]string{}, "signal: killed"
		}
	})
}

// vanish stops the service with all daemons, as the deletion of its pod does.
func (s *mpsService) vanish() {
	s.change(func() {
		for id := range s.daemons {
			s.kept[id] = true
		}
		s.disturbed, s.down, s.daemons = true, true, map[gpu.MPSDaemonID]*mpsDaemon{}
	})
}

// interrupt stops the service alone: the daemons keep running.
func (s *mpsService) interrupt() { s.change(func() { s.down = true }) }

// resume starts the service again.
func (s *mpsService) resume() {
	s.change(func() { s.disturbed, s.down = s.disturbed || s.down, false })
}

// outdate replaces the driver under the daemons.
func (s *mpsService) outdate() {
	s.change(func() {
		for _, d := range s.daemons {
			d.Outdated = true
		}
	})
}

// reconciles records that a reconciler begins to act.
func (s *mpsService) reconciles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconciling = true
}

// reconciled records that a reconciler has acted, unless its process was killed.
func (s *mpsService) reconciled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconciling = false
	if s.ended != nil && s.ended() {
		return
	}
	s.disturbed = false
}
