package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Service is the common part of step and reconciler. Work on a device is done under the lock of its GPU.
type Service struct {
	Daemons Daemons
	Modes   Modes
	Store   *Store
	// Load identifies the present load of the driver, empty if that is not known.
	Load func() string
	// Process finds processes of the host.
	Process Process
	// Watcher holds the last report of the MPS service.
	Watcher *Watcher
	// Counts are the counts of this process.
	Counts *Counts
}

// share makes the device usable only through its control daemon. A device with a saved state costs no call of the driver and one round
// trip.
func (s *Service) share(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) error {
	kept, err := s.Store.get(id)
	if err != nil {
		return err
	}
	switch {
	case kept == nil || kept.Device != spec.Device:
		return s.first(ctx, id, spec, s.startNew)
	case kept.outdated(s.Load()): // claims that use the directory may be prepared all the same
		return s.first(ctx, id, spec, s.start)
	case !kept.Prohibited && (s.gone(id, kept) || s.died(ctx, id)):
		if err := s.prohibit(ctx, id, kept); err != nil {
			return err
		}
	}
	if kept.Prohibited {
		_, err = s.admit(ctx, id, spec, kept)
		return err
	}
	return s.ensure(ctx, id, spec, kept)
}

// died reports whether the daemon exited. The service has reported that, and is asked again: the reconciler may have started the daemon
// since, and its clients must not find a device that is prohibited.
func (s *Service) died(ctx context.Context, id gpu.MPSDaemonID) bool {
	if d, known := s.Watcher.Daemon(id); !known || d.State == gpu.MPSRunning {
		return false
	}
	daemons, _, err := s.Daemons.Daemons(ctx, 0)
	if err != nil {
		return true
	}
	d := find(daemons, id)
	return d == nil || d.State != gpu.MPSRunning
}

// starts is how a control daemon is started: for a device without claims, or again.
type starts func(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error)

// first starts the control daemon of a device that is not shared yet. It is started before anything is saved, so that the saved state names
// its process; without a server it does not use the device.
func (s *Service) first(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, start starts) error {
	modes, err := s.Modes()
	if err != nil {
		return err
	}
	before, err := modes.ComputeMode(ctx, spec.Device)
	if err != nil && !unsupported(err) {
		return fmt.Errorf("reading the compute mode of %s: %w", spec.Device, err)
	}
	if before == gpu.ComputeProhibited {
		return fmt.Errorf("the compute mode of %[1]s is %[2]s, which an administrator has set, so no program can use it: "+
			"set another one on the node with nvidia-smi -i %[1]s -c 0", spec.Device, before)
	}
	daemon, err := start(ctx, id, spec)
	if err != nil {
		return err
	}
	// Until the daemon accepts clients the next share, or the reconciler, admits them: a process that is killed before does not leave a
	// device that others may use, or a daemon which clients cannot reach.
	kept := &saved{GPU: spec.GPU, Device: spec.Device, Mode: before, Load: s.Load(), Prohibited: true}
	if err := s.save(id, kept, daemon); err != nil {
		return err
	}
	s.Watcher.Wake()
	if before != gpu.ComputeExclusiveProcess {
		err = s.set(ctx, id, kept, gpu.ComputeExclusiveProcess)
	}
	if refused(err) { // otherwise Undo would set it, which would fail again
		err = errors.Join(err, s.Store.remove(id))
	}
	if err != nil {
		return err
	}
	_, err = s.accept(ctx, id, spec, kept)
	return err
}

// accept makes the daemon accept clients, and only then saves that nothing is left to do for them.
func (s *Service) accept(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, kept *saved) (gpu.MPSDaemon, error) {
	daemon, err := s.run(ctx, id, spec, s.Daemons.Ensure, sameDevice)
	if err != nil {
		return daemon, err
	}
	kept.Prohibited = false
	return daemon, s.save(id, kept, daemon)
}

// admit lets processes use a device again whose mode is prohibited: it starts the control daemon, sets the mode and then starts the server.
// The mode is prohibited again if the daemon does not accept clients, and the next share or the reconciler tries again.
func (s *Service) admit(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, kept *saved) (gpu.MPSDaemon, error) {
	daemon, err := s.start(ctx, id, spec)
	if err != nil {
		return daemon, err
	}
	if daemon.PID != kept.PID {
		if err := s.save(id, kept, daemon); err != nil {
			return daemon, err
		}
	}
	if err := s.set(ctx, id, kept, gpu.ComputeExclusiveProcess); err != nil {
		return daemon, err
	}
	if daemon, err = s.accept(ctx, id, spec, kept); err != nil {
		err = errors.Join(err, s.set(context.WithoutCancel(ctx), id, kept, gpu.ComputeProhibited))
	}
	return daemon, err
}

// prohibit keeps processes from a device without a control daemon.
func (s *Service) prohibit(ctx context.Context, id gpu.MPSDaemonID, kept *saved) error {
	kept.Prohibited = true
	if err := s.Store.put(id, *kept); err != nil {
		return err
	}
	err := s.set(ctx, id, kept, gpu.ComputeProhibited)
	if err != nil { // so that it is tried again
		kept.Prohibited = false
		err = errors.Join(err, s.Store.put(id, *kept))
	}
	return err
}

// set sets the mode of a device with its own mode.
func (s *Service) set(ctx context.Context, id gpu.MPSDaemonID, kept *saved, mode gpu.ComputeMode) error {
	if kept.Mode == "" {
		return nil
	}
	modes, err := s.Modes()
	if err == nil {
		err = modes.SetComputeMode(ctx, kept.Device, mode)
	}
	if unsupported(err) { // it can be read and not set
		kept.Mode = ""
		return s.Store.put(id, *kept)
	}
	if err != nil {
		return fmt.Errorf("setting the compute mode of %s to %s: %w", kept.Device, mode, err)
	}
	return nil
}

// start starts the control daemon if it does not run, without a server.
func (s *Service) start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, id, spec, s.Daemons.Start, sameDevice)
}

// startNew does that for a device that no claim uses yet. A daemon whose settings differ from the spec is replaced, even if an MPS service
// of an earlier version has answered.
func (s *Service) startNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, id, spec, s.Daemons.StartNew, func(a, b gpu.MPSDaemonSpec) bool { return a == b })
}

// sameDevice: a daemon that runs keeps its other settings, which claims rely on.
func sameDevice(a, b gpu.MPSDaemonSpec) bool { return a.Device == b.Device }

// ensure starts the control daemon and its server, and saves the daemon's process if it is another one.
func (s *Service) ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, kept *saved) error {
	daemon, err := s.run(ctx, id, spec, s.Daemons.Ensure, sameDevice)
	if err == nil && daemon.PID != kept.PID {
		err = s.save(id, kept, daemon)
	}
	return err
}

// run starts the control daemon with one of the port's calls. One whose settings do not fit is replaced: it serves another MIG device at the
// same place, or an earlier claim.
func (s *Service) run(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec, call starts, fits func(a, b gpu.MPSDaemonSpec) bool) (gpu.MPSDaemon, error) {
	daemon, err := call(ctx, id, spec)
	if err == nil && !fits(daemon.Spec, spec) {
		if err = s.Daemons.Stop(ctx, id); err == nil {
			daemon, err = call(ctx, id, spec)
		}
	}
	if err != nil {
		return daemon, fmt.Errorf("starting %s: %w", named(id, spec.GPU), explained(err))
	}
	return daemon, nil
}

// save saves the state of a device with the process of its control daemon.
func (s *Service) save(id gpu.MPSDaemonID, kept *saved, daemon gpu.MPSDaemon) error {
	kept.PID = daemon.PID
	kept.Started, _ = s.Process(daemon.PID)
	return s.Store.put(id, *kept)
}

// release ends the sharing of a device: it stops the daemon and gives the device the mode that it had before.
func (s *Service) release(ctx context.Context, id gpu.MPSDaemonID, target gpu.UUID) error {
	kept, err := s.Store.get(id)
	if err != nil {
		return err
	}
	if err := s.stop(ctx, id, kept); err != nil {
		return fmt.Errorf("stopping %s: %w", named(id, target), err)
	}
	if kept == nil {
		return s.Store.remove(id) // a temporary file that a killed process left, or one of an earlier boot
	}
	if !kept.Prohibited && kept.Mode != "" { // so that a share before this ends sets the mode again; a full disk does not block the pod's deletion
		kept.Prohibited = true
		if err := s.Store.put(id, *kept); err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	if err := s.restore(ctx, kept); err != nil {
		return fmt.Errorf("setting the compute mode of %s to %s again: %w", kept.Device, kept.Mode, err)
	}
	return s.Store.remove(id)
}

// stop stops the daemon. Only an answer of the service proves that: otherwise it may run a daemon that was not saved, or be about to start
// one, and a daemon whose process is gone leaves its directory with files of its clients. If no service has run since the boot, there is
// nothing.
func (s *Service) stop(ctx context.Context, id gpu.MPSDaemonID, kept *saved) error {
	err := s.Daemons.Stop(ctx, id)
	switch {
	case !errors.Is(err, gpu.ErrMPSUnavailable):
		return err
	case kept == nil && errors.Is(err, fs.ErrNotExist):
		return nil
	case kept != nil && s.daemonRuns(kept):
		return fmt.Errorf("it runs with pid %d on the host: %w", kept.PID, explained(err))
	}
	return fmt.Errorf("whether it is stopped, and its files are removed, is not known: %w", explained(err))
}

// daemonRuns reports whether the process of the daemon runs, which no service is needed to find out.
func (s *Service) daemonRuns(kept *saved) bool {
	started, runs := s.Process(kept.PID)
	return runs && started == kept.Started
}

// gone reports whether the daemon has certainly exited: neither its process runs nor, if it was started again and that was not saved, the one
// that the service has reported.
func (s *Service) gone(id gpu.MPSDaemonID, kept *saved) bool {
	if kept.Started == 0 || s.daemonRuns(kept) { // 0: its process was not found
		return false
	}
	d, known := s.Watcher.Daemon(id)
	if !known || d.State != gpu.MPSRunning || d.PID == kept.PID {
		return true
	}
	_, runs := s.Process(d.PID)
	return !runs
}

// restore sets the mode that the device had before it was shared.
func (s *Service) restore(ctx context.Context, kept *saved) error {
	if kept.Mode == "" || kept.outdated(s.Load()) {
		return nil
	}
	modes, err := s.Modes()
	if err != nil {
		return err
	}
	err = modes.SetComputeMode(ctx, kept.Device, kept.Mode)
	gone := kept.Device != string(kept.GPU) && errors.Is(err, gpu.ErrNotFound) // a MIG device took its mode along
	if gone || unsupported(err) {
		return nil
	}
	return err
}

// named names a daemon in a sentence.
func named(id gpu.MPSDaemonID, target gpu.UUID) string {
	return fmt.Sprintf("MPS control daemon %s of GPU %s", id, target)
}

func unsupported(err error) bool {
	_, is := errors.AsType[*gpu.UnsupportedError](err)
	return is
}

// refused reports whether the error means that the driver has certainly set nothing.
func refused(err error) bool {
	refusals := []error{gpu.ErrPermission, gpu.ErrNotFound, gpu.ErrDriverNotLoaded, gpu.ErrLost, gpu.ErrInUse}
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}
