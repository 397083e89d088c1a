package mps

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Reconciler keeps the control daemons of shared devices running. At most one process of a node runs one. It acts at the start, when the
// MPS service reports something else, when the process of a daemon is gone, and now and then; on a node without shares it does nothing. Each
// device is checked by itself: one whose lock is taken, or whose driver hangs, delays no other.
type Reconciler struct {
	ReconcilerOptions

	mu      sync.Mutex
	devices map[gpu.MPSDaemonID]*progress
	// preparing are the devices of which something is saved and that no claim shares yet, or any more, with the time until they are checked
	// again: nothing reports that a claim is prepared, which another process may do.
	preparing map[gpu.MPSDaemonID]time.Duration
	// checked has one entry when a check has returned since the last round.
	checked chan struct{}
	// unread is why the last round could not read which devices are shared; empty if it could.
	unread string

	reporting sync.Mutex
	// unrestored are the GPUs that were reported last as Unrestored.
	unrestored []gpu.UUID
}

// ReconcilerOptions are the dependencies of a Reconciler.
type ReconcilerOptions struct {
	*Service
	// BootID is the present boot.
	BootID string
	// Records returns the records of the node's claims.
	Records func() ([]*checkpoint.Record, error)
	// WithGPULock calls do with the GPU's lock held, so that no claim on that GPU is prepared or unprepared meanwhile.
	WithGPULock func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error
	Report      Reports
}

// Reports are called with events of shared devices. They must not block.
type Reports struct {
	// Restarted: the daemon had exited, for that cause if it is known, and runs again.
	Restarted func(d Shared, cause string)
	// ServerRestarted: the daemon has run on, and its server for all users had exited and runs again.
	ServerRestarted func(d Shared)
	// LimitsChanged: limits had been changed to these, and were set again to the limits of the settings.
	LimitsChanged func(d Shared, found gpu.MPSLimitsInForce, settings gpu.MPSDaemonSpec)
	// SingleUser: the driver lacks a server for all users. It is called once per device and process.
	SingleUser func(d Shared)
	// Failed: the device cannot be used. It is called once per cause, until the device can be used.
	Failed func(d Shared, err error)
	// Unread: the records of claims, or the saved states of devices, cannot be read, so no device is checked. It is called once per cause,
	// until they can be read.
	Unread func(err error)
	// Unrestored: the daemons or servers of devices of these GPUs, in place of the ones before, were not restored.
	Unrestored func(gpus []gpu.UUID)
}

// progress is a Reconciler's memory of a device.
type progress struct {
	// next is the earliest time of another repair of a device that cannot be used, delay the time between two repairs.
	next  time.Time
	delay time.Duration
	// failing is why the device cannot be used; empty if it can.
	failing string
	// prohibited: this process has prohibited the mode, or found it prohibited, since the device's last daemon exited.
	prohibited bool
	singleUser bool
	// gpu is the physical GPU; unrestored: the daemon or its server could not be started again, and processes cannot use the device.
	gpu        gpu.UUID
	unrestored bool
	// checking: a check is in flight. again: the device has to be checked again after it, and fully if that was asked for.
	checking, again, full bool
	// kept is the last known saved state of the device; acted: a check may have changed the saved state since.
	kept  saved
	acted bool
	// daemon and server are the last known pids, and restarted is the pid of the last daemon that was reported as restarted; 0 if unknown.
	daemon, server, restarted int
}

const (
	// period is how often mode and limits of shared devices are checked.
	period = 30 * time.Second
	// A daemon that has exited is started at once, and after restartFirst if it exits again or cannot be started, with exponential back-off up
	// to restartMost. One that has run for calm is started at once.
	restartFirst = time.Second
	restartMost  = 5 * time.Minute
	calm         = 10 * time.Minute
	// unreadable is the time between two attempts to read the saved states and the records.
	unreadable = 10 * time.Second
	// shortest is the least time between two rounds without news.
	shortest = 100 * time.Millisecond
	// unwatched is how often daemons are checked that no service watches, and devices at most that claims are prepared for.
	unwatched = 5 * time.Second
	// exitTime is the time between two inspections of the processes of daemons.
	exitTime = 500 * time.Millisecond
	// preparingFirst is how soon a device is checked first that a claim is prepared for.
	preparingFirst = 100 * time.Millisecond
)

// NewReconciler returns a reconciler that has checked nothing yet.
func NewReconciler(options ReconcilerOptions) *Reconciler {
	return &Reconciler{ReconcilerOptions: options, devices: map[gpu.MPSDaemonID]*progress{}, checked: make(chan struct{}, 1)}
}

// Run reconciles until the context ends.
func (r *Reconciler) Run(ctx context.Context) {
	var checks sync.WaitGroup
	defer checks.Wait()
	last := time.Time{}
	for ctx.Err() == nil {
		news, full := r.Watcher.News(), time.Since(last) >= period
		if full {
			last = time.Now()
		}
		wait := r.begin(ctx, full, &checks)
		r.sleep(ctx, news, func() time.Duration { return max(min(wait, r.wait(), period-time.Since(last)), shortest) })
	}
}

// sleep returns after the wait, which is shorter or longer after a check, or at once when there is news.
func (r *Reconciler) sleep(ctx context.Context, news <-chan struct{}, wait func() time.Duration) {
	timer, inspection := time.NewTimer(wait()), time.NewTicker(exitTime)
	defer timer.Stop()
	defer inspection.Stop()
	if !r.shares() {
		inspection.Stop()
	}
	for {
		select {
		case <-r.checked:
			timer.Reset(wait())
			continue
		case <-inspection.C:
			if !r.exited() {
				continue
			}
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		return
	}
}

// shares reports whether there are shared devices.
func (r *Reconciler) shares() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.devices) > 0
}

// exited reports whether the process of a daemon is gone whose device other processes can use.
func (r *Reconciler) exited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, p := range r.devices {
		if p.acted && !p.checking { // no round need follow the check
			if kept, err := r.Store.get(id); err == nil && kept != nil {
				p.kept, p.acted = *kept, false
			}
		}
		if !p.checking && p.failing == "" && !p.kept.Prohibited && r.gone(id, &p.kept) {
			return true
		}
	}
	return false
}

// Reconcile checks every shared device: whether its daemon runs, and, for a full check, whether its mode and limits are in force. It returns
// after which time it has to be called again although nothing changes.
func (r *Reconciler) Reconcile(ctx context.Context, full bool) (wait time.Duration) {
	var checks sync.WaitGroup
	wait = r.begin(ctx, full, &checks)
	checks.Wait()
	return min(wait, r.wait())
}

// begin begins the checks of all devices that need one, and returns after which time it has to be called again whatever these come to.
func (r *Reconciler) begin(ctx context.Context, full bool, checks *sync.WaitGroup) (wait time.Duration) {
	kept, records, err := r.read()
	if r.noteUnread(err); err != nil {
		return unreadable
	}
	if len(kept) == 0 {
		r.keep(nil, nil)
		r.reportUnrestored()
		r.preparing = nil
		return period
	}
	devices := shared(records, r.BootID)
	r.keep(devices, kept)
	r.reportUnrestored()
	for _, d := range devices {
		r.observe(d)
		due, full := r.due(d, kept[d.ID], full)
		if r.mayCheck(d.ID, due, full) {
			checks.Go(func() { r.checks(ctx, d, kept[d.ID], full) })
		}
	}
	return r.prepared(kept)
}

// mayCheck reports whether a check that is due may begin: if one is in flight, another follows it.
func (r *Reconciler) mayCheck(id gpu.MPSDaemonID, due, full bool) (begins bool) {
	r.change(id, func(p *progress) {
		begins = due && !p.checking
		if p.checking && due {
			p.again, p.full = true, p.full || full
		} else if !p.checking {
			p.checking, p.again, p.full = begins, false, false
		}
	})
	return begins
}

// checks checks one device.
func (r *Reconciler) checks(ctx context.Context, d Shared, kept saved, full bool) {
	defer func() {
		r.change(d.ID, func(p *progress) { p.checking = false })
		r.reportUnrestored()
		select {
		case r.checked <- struct{}{}:
		default:
		}
	}()
	r.check(ctx, d, kept, full)
}

// read returns the saved states of devices and, if there are any, the records of claims.
func (r *Reconciler) read() (map[gpu.MPSDaemonID]saved, []*checkpoint.Record, error) {
	kept, err := r.Store.present()
	if err != nil || len(kept) == 0 {
		return kept, nil, err
	}
	records, err := r.Records()
	return kept, records, err
}

// noteUnread counts and reports an error of read.
func (r *Reconciler) noteUnread(err error) {
	before := r.unread
	if r.unread = ""; err == nil {
		return
	}
	r.Counts.failures.Add(1)
	if r.unread = err.Error(); r.unread != before {
		r.Report.Unread(err)
	}
}

// observe reports a daemon or a server that has been started again by whatever noticed first that it had exited: the reconciler, a claim that
// is prepared, or the MPS service.
func (r *Reconciler) observe(d Shared) {
	daemon, known := r.Watcher.Daemon(d.ID)
	if !known {
		return
	}
	var before progress
	r.change(d.ID, func(p *progress) {
		before = *p
		if p.daemon != daemon.PID {
			p.daemon, p.server = daemon.PID, 0
		}
		if len(daemon.Servers) > 0 {
			p.server = daemon.Servers[0]
		}
	})
	switch {
	case daemon.State != gpu.MPSRunning || before.daemon == 0:
	case before.daemon != daemon.PID:
		if daemon.LastExit != "" { // otherwise it was stopped for another driver
			r.restarted(d, daemon.PID, daemon.LastExit)
		}
	case daemon.MultiUser && before.server != 0 && len(daemon.Servers) > 0 && !slices.Contains(daemon.Servers, before.server):
		r.Report.ServerRestarted(d)
	}
}

// restarted counts and reports once that a daemon which had exited runs again.
func (r *Reconciler) restarted(d Shared, pid int, cause string) {
	news := false
	r.change(d.ID, func(p *progress) { news, p.restarted = p.restarted != pid, pid })
	if news {
		r.Counts.restarts.Add(1)
		r.Report.Restarted(d, cause)
	}
}

// prepared is the time until the next device may be shared that a claim is prepared for.
func (r *Reconciler) prepared(kept map[gpu.MPSDaemonID]saved) (wait time.Duration) {
	before := r.preparing
	r.preparing, wait = map[gpu.MPSDaemonID]time.Duration{}, period
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range kept {
		if r.devices[id] == nil {
			r.preparing[id] = min(max(2*before[id], preparingFirst), unwatched)
			wait = min(wait, r.preparing[id])
		}
	}
	return wait
}

// keep forgets devices that are not shared any more, and remembers the saved states of the others.
func (r *Reconciler) keep(devices []Shared, kept map[gpu.MPSDaemonID]saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.devices
	r.devices = map[gpu.MPSDaemonID]*progress{}
	for _, d := range devices {
		if r.devices[d.ID] = before[d.ID]; r.devices[d.ID] == nil {
			// A device that an earlier process has left prohibited lacks its daemon.
			r.devices[d.ID] = &progress{gpu: d.GPU, unrestored: kept[d.ID].Prohibited}
		}
		r.devices[d.ID].kept = kept[d.ID]
	}
}

// due reports whether something may have to be done about a device, and whether mode and limits have to be checked. Known facts answer
// that, without its lock.
func (r *Reconciler) due(d Shared, kept saved, full bool) (due, forced bool) {
	r.mu.Lock()
	p := *r.devices[d.ID]
	r.mu.Unlock()
	if !p.checking {
		full = full || p.full
	}
	periodic := full
	full = full || p.failing != ""
	switch early := time.Now().Before(p.next); {
	case !kept.Prohibited && r.gone(d.ID, &kept): // the mode does not wait, neither for the service nor for its restart
		return !early || p.failing == "", full
	case r.Watcher.Unavailable() != nil:
		return !early && (full || !r.withheld(p, &kept)), full
	case !r.Watcher.Answers():
		return false, full
	}
	return r.dueInService(d, &kept, &p, periodic), full
}

// dueInService is the answer of due while the service answers.
func (r *Reconciler) dueInService(d Shared, kept *saved, p *progress, periodic bool) bool {
	daemon, runs := r.Watcher.Daemon(d.ID)
	runs = runs && daemon.State == gpu.MPSRunning
	switch early := time.Now().Before(p.next); {
	case !runs && !kept.Prohibited:
		return !early || p.failing == "" // the mode does not wait
	case !runs || kept.Prohibited || p.failing != "":
		return !early || periodic // a driver without persistence mode may have forgotten the mode meanwhile
	}
	return periodic || p.again || changed(&daemon, p)
}

// changed reports whether something is to be done about a daemon that runs.
func changed(daemon *gpu.MPSDaemon, p *progress) bool {
	return daemon.Outdated || serverless(daemon) || !daemon.MultiUser && !p.singleUser
}

// withheld reports whether a device is as it has to be while the service does not answer: used through a daemon that runs, or by no
// process.
func (r *Reconciler) withheld(p progress, kept *saved) bool {
	if kept.Prohibited {
		return p.prohibited
	}
	return r.daemonRuns(kept)
}

// wait is the time until the next daemon may be started again, or may have exited while the service does not answer.
func (r *Reconciler) wait() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, unavailable := period, r.Watcher.Unavailable() != nil
	for _, p := range r.devices {
		if p.checking {
			continue
		}
		if p.again {
			next = min(next, shortest)
		}
		if unavailable && !p.prohibited {
			next = min(next, unwatched)
		}
		// One whose time has come was not attempted: the service is silent, and news of it wakes the loop.
		if left := time.Until(p.next); p.failing != "" && left > 0 {
			next = min(next, left)
		} else if p.failing != "" {
			next = min(next, restartFirst)
		}
	}
	return next
}
