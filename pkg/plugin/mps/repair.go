package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// checkTime is the time limit for the check of one device, with the wait for its lock.
const checkTime = time.Minute

// check repairs a device if necessary. It takes the lock only for a repair, and checks under the lock again that it is necessary. While the
// GPUs of the node are released for a reset of another one, nothing is repaired: devices with shares are not reset.
func (r *Reconciler) check(ctx context.Context, d Shared, known saved, full bool) {
	if _, err := r.Modes(); errors.Is(err, gpu.ErrInUse) {
		return
	}
	checking, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	if full && r.asWanted(checking, d, known) {
		return
	}
	locked := false
	err := r.WithGPULock(checking, d.GPU, func(ctx context.Context) error {
		locked = true
		now, err := r.now(d.ID)
		if err != nil || now == nil { // its last claim was unprepared meanwhile
			return err
		}
		defer r.change(d.ID, func(p *progress) { p.acted = true })
		return r.act(ctx, *now, full)
	})
	if ctx.Err() != nil {
		return
	}
	if !locked && checking.Err() != nil {
		err = fmt.Errorf("%w %s: %w", errLockTaken, d.GPU, err)
	}
	if r.note(d.ID, err) {
		r.Report.Failed(d, err)
	}
}

// act repairs a device. The GPU's lock is held. A device without the process of its daemon is withheld from processes before the service is
// asked, which may be restarting or hang.
func (r *Reconciler) act(ctx context.Context, d Shared, full bool) error {
	kept, err := r.kept(ctx, d)
	if err != nil || kept == nil {
		return err
	}
	gone := !kept.Prohibited && r.gone(d.ID, kept)
	if gone {
		if err := r.ensureProhibited(ctx, d, kept); err != nil {
			return err
		}
	}
	switch {
	case r.Watcher.Unavailable() != nil && !gone:
		return r.withhold(ctx, d, kept, full)
	case !r.Watcher.Answers(): // it may be restarting, and starts the daemon when it answers again
		return nil
	}
	return r.repair(ctx, d, kept, repairing{full: full, prohibited: gone})
}

// repairing is how a device is repaired: fully, or after its mode was prohibited in the same check.
type repairing struct{ full, prohibited bool }

// asWanted reports whether a device is used through a daemon that runs, with mode and limits in force. No claim waits meanwhile.
func (r *Reconciler) asWanted(ctx context.Context, d Shared, kept saved) bool {
	var p progress
	r.change(d.ID, func(now *progress) { p = *now })
	daemon, runs := r.Watcher.Daemon(d.ID)
	if !runs || daemon.State != gpu.MPSRunning || kept.Prohibited || kept.outdated(r.Load()) || p.failing != "" || changed(&daemon, &p) {
		return false
	}
	if kept.Mode != "" {
		modes, err := r.Modes()
		if err != nil {
			return false
		}
		if mode, err := modes.ComputeMode(ctx, kept.Device); err != nil || mode != gpu.ComputeExclusiveProcess {
			return false
		}
	}
	limits, err := r.Daemons.Limits(ctx, d.ID)
	return err == nil && inForce(limits, daemon.Spec)
}

// now returns the device from the records that are read under its lock; nil if no claim shares it.
func (r *Reconciler) now(id gpu.MPSDaemonID) (*Shared, error) {
	records, err := r.Records()
	if err != nil {
		return nil, err
	}
	devices := shared(records, r.BootID)
	if i := slices.IndexFunc(devices, func(d Shared) bool { return d.ID == id }); i >= 0 {
		return &devices[i], nil
	}
	return nil, nil
}

var (
	// errTooSoon: the daemon was started too recently.
	errTooSoon = errors.New("it restarts too often")
	// errLockTaken: a claim that is prepared for long keeps the lock. The device may work, and its check waits for the lock again.
	errLockTaken = errors.New("waiting for the lock of GPU")
)

// note remembers why a device cannot be used, when it is repaired again, and reports whether that is news. A service that does not answer is
// reported for all devices together; a lock that is taken is only counted.
func (r *Reconciler) note(id gpu.MPSDaemonID, err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.devices[id]
	if p == nil {
		return false
	}
	before := p.failing
	if p.failing = ""; err == nil {
		return false
	}
	p.failing = err.Error()
	p.unrestored = p.unrestored || isUnrestored(err, p.delay)
	if errors.Is(err, errTooSoon) {
		return before != p.failing
	}
	r.Counts.failures.Add(1)
	if errors.Is(err, errLockTaken) { // it has waited for long enough
		return false
	}
	p.wait()
	return before != p.failing && !errors.Is(err, gpu.ErrMPSUnavailable)
}

// withhold keeps processes from a device while the service does not answer: one that finds no daemon would use it without MPS. A device
// whose daemon runs stays as it is.
func (r *Reconciler) withhold(ctx context.Context, d Shared, kept *saved, full bool) (err error) {
	switch {
	case kept.Prohibited: // by another process, or in a driver that may have forgotten it
		err = r.enforce(ctx, kept, gpu.ComputeProhibited)
	case !r.daemonRuns(kept):
		err = r.prohibit(ctx, d.ID, kept)
	case full:
		return r.enforce(ctx, kept, gpu.ComputeExclusiveProcess)
	default:
		return nil
	}
	if err == nil {
		r.change(d.ID, func(p *progress) { p.prohibited = true })
	}
	return err
}

func (r *Reconciler) change(id gpu.MPSDaemonID, how func(p *progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.devices[id]; p != nil {
		how(p)
	}
}

// repair starts the daemon and enforces its mode and limits. The GPU's lock is held, so the service is asked again for its daemons.
func (r *Reconciler) repair(ctx context.Context, d Shared, kept *saved, how repairing) error {
	daemons, _, err := r.Daemons.Daemons(ctx, 0)
	if err != nil {
		return fmt.Errorf("finding %s: %w", named(d.ID, d.GPU), explained(err))
	}
	daemon := find(daemons, d.ID)
	switch {
	case daemon == nil || daemon.State != gpu.MPSRunning:
		if daemon, err = r.restart(ctx, d, kept, daemon, how.prohibited); err != nil {
			return err
		}
	case kept.Prohibited:
		if err := r.readmit(ctx, d, kept); err != nil {
			return err
		}
	default:
		if err := r.renew(ctx, d, kept, daemon); err != nil {
			return err
		}
		if how.full {
			if err := r.forced(ctx, d, kept, daemon.Spec); err != nil {
				return err
			}
		}
	}
	r.admitted(d, daemon)
	return nil
}

// readmit lets processes use a device again whose daemon runs. errTooSoon: that failed too recently.
func (r *Reconciler) readmit(ctx context.Context, d Shared, kept *saved) error {
	if !r.mayStart(d.ID) {
		return errors.Join(r.ensureProhibited(ctx, d, kept), fmt.Errorf("having %s accept clients: %w", named(d.ID, d.GPU), errTooSoon))
	}
	_, err := r.admit(ctx, d.ID, d.spec(kept.Device), kept)
	return err
}

// serverless reports whether the daemon's server for all users has exited: no client is admitted without it.
func serverless(daemon *gpu.MPSDaemon) bool { return daemon.MultiUser && len(daemon.Servers) == 0 }

// renew starts the server of a daemon again that has exited, and a daemon of an earlier driver if it serves no clients. errTooSoon: the
// server was started too recently. No server starts on a device that other processes may use.
func (r *Reconciler) renew(ctx context.Context, d Shared, kept *saved, daemon *gpu.MPSDaemon) error {
	exited := serverless(daemon)
	if !exited && !daemon.Outdated {
		return nil
	}
	if exited && !r.mayStart(d.ID) {
		return fmt.Errorf("starting the server of %s again: %w", named(d.ID, d.GPU), errTooSoon)
	}
	if err := r.enforce(ctx, kept, gpu.ComputeExclusiveProcess); err != nil { // a driver without persistence mode may have forgotten it
		return err
	}
	if err := r.ensure(ctx, d.ID, d.spec(kept.Device), kept); err != nil {
		return err
	}
	if exited {
		r.change(d.ID, (*progress).wait)
	}
	return nil
}

// kept returns the saved state of the device. If the driver was loaded again since, the mode before is the present one.
func (r *Reconciler) kept(ctx context.Context, d Shared) (*saved, error) {
	kept, err := r.Store.get(d.ID)
	if err != nil || kept == nil || !kept.outdated(r.Load()) || kept.Mode == "" {
		return kept, err
	}
	modes, err := r.Modes()
	if err != nil {
		return nil, err
	}
	mode, err := modes.ComputeMode(ctx, kept.Device)
	if err != nil {
		return nil, fmt.Errorf("reading the compute mode of %s: %w", kept.Device, err)
	}
	kept.Load = r.Load()
	if mode != gpu.ComputeProhibited && mode != gpu.ComputeExclusiveProcess { // else this has set it since
		kept.Mode = mode
	}
	return kept, r.Store.put(d.ID, *kept)
}

// restart starts a daemon that does not run: first nothing may use the device, and the mode that allows it comes last. errTooSoon: it was
// started too recently.
func (r *Reconciler) restart(ctx context.Context, d Shared, kept *saved, daemon *gpu.MPSDaemon, prohibited bool) (*gpu.MPSDaemon, error) {
	if !prohibited {
		if err := r.ensureProhibited(ctx, d, kept); err != nil {
			return nil, err
		}
	}
	cause := "the MPS service does not have it"
	if daemon != nil {
		cause = cmp.Or(daemon.Error, string(daemon.State))
	}
	if !r.mayStart(d.ID) {
		return nil, fmt.Errorf("starting %s again: %w: %s", named(d.ID, d.GPU), errTooSoon, cause)
	}
	started, err := r.admit(ctx, d.ID, d.spec(kept.Device), kept)
	if err != nil {
		return nil, err
	}
	r.change(d.ID, (*progress).wait)
	r.restarted(d, started.PID, cause)
	return &started, nil
}

// ensureProhibited keeps processes from a device. The saved state may not hold: the process that saved it may have been killed before it
// set the mode, and a driver without persistence mode forgets it.
func (r *Reconciler) ensureProhibited(ctx context.Context, d Shared, kept *saved) (err error) {
	if kept.Prohibited {
		err = r.enforce(ctx, kept, gpu.ComputeProhibited)
	} else {
		err = r.prohibit(ctx, d.ID, kept)
	}
	if err == nil {
		r.change(d.ID, func(p *progress) { p.prohibited = true })
	}
	return err
}

// mayStart reports whether the daemon may be started again now.
func (r *Reconciler) mayStart(id gpu.MPSDaemonID) (may bool) {
	r.change(id, func(p *progress) { may = !time.Now().Before(p.next) })
	return may
}

// wait defers the next repair.
func (p *progress) wait() {
	now := time.Now()
	if now.Sub(p.next) > calm {
		p.delay = 0
	}
	p.delay = min(max(2*p.delay, restartFirst), restartMost)
	p.next = now.Add(p.delay)
}

// admitted notes that processes can use the device, and reports a daemon without a server for all users.
func (r *Reconciler) admitted(d Shared, daemon *gpu.MPSDaemon) {
	news := false
	r.change(d.ID, func(p *progress) {
		p.prohibited, p.unrestored = false, false
		news = !daemon.MultiUser && !p.singleUser
		p.singleUser = !daemon.MultiUser
	})
	if news {
		r.Report.SingleUser(d)
	}
}

// enforce sets the mode if it is another one: a driver without persistence mode forgets modes.
func (r *Reconciler) enforce(ctx context.Context, kept *saved, wanted gpu.ComputeMode) error {
	if kept.Mode == "" {
		return nil
	}
	modes, err := r.Modes()
	if err != nil {
		return err
	}
	mode, err := modes.ComputeMode(ctx, kept.Device)
	if err == nil && mode != wanted {
		err = modes.SetComputeMode(ctx, kept.Device, wanted)
	}
	if err != nil {
		return fmt.Errorf("setting the compute mode of %s to %s: %w", kept.Device, wanted, err)
	}
	return nil
}

// forced sets mode and limits if they differ from the settings: processes that can reach the daemon can change limits.
func (r *Reconciler) forced(ctx context.Context, d Shared, kept *saved, settings gpu.MPSDaemonSpec) error {
	if err := r.enforce(ctx, kept, gpu.ComputeExclusiveProcess); err != nil {
		return err
	}
	limits, err := r.Daemons.Limits(ctx, d.ID)
	if err == nil && !inForce(limits, settings) {
		if err = r.Daemons.RestoreLimits(ctx, d.ID, settings); err == nil {
			r.Counts.limitsChanged.Add(1)
			r.Report.LimitsChanged(d, limits, settings)
		}
	}
	if err != nil {
		return fmt.Errorf("restoring the limits of %s: %w", named(d.ID, d.GPU), explained(err))
	}
	return nil
}
