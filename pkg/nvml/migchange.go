package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// changeDeadline is the time a call has that changes how a GPU is partitioned: it resets a part of the board or all of it.
const changeDeadline = 30 * time.Second

// takeBackTime is what taking back a change of the MIG mode gets, also when the caller's time is over.
const takeBackTime = 10 * time.Second

// change prepares a change of the GPU. While it goes on no inspection asks this GPU anything: a board that is being reset would
// seem to be broken.
func (s *Session) change(ctx context.Context, id gpu.UUID) (q query, b *board, done func(), err error) {
	change := s.changes(id)
	change.Lock()
	q, b, err = s.at(ctx, id) // the change before may have brought a new handle
	if err != nil {
		change.Unlock()
		return q, nil, nil, err
	}
	q.limit = max(changeDeadline, s.opts.Deadline)
	return q, b, change.Unlock, nil
}

// changes orders inspections and changes of one GPU.
func (s *Session) changes(id gpu.UUID) *sync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changing[id] == nil {
		s.changing[id] = &sync.Mutex{}
	}
	return s.changing[id]
}

// SetMIGMode enables or disables the GPU's MIG mode. It returns nil when the mode is in force. gpu.ErrInUse: a process holds the
// GPU, or there are instances. Where a change needs a reset it is a *gpu.UnsupportedError. After an error nothing is pending, unless it
// says so; seeing to that may take a few seconds longer than the context has.
func (s *Session) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	q, b, done, err := s.change(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	before, err := q.migMode(b)
	switch {
	case err != nil:
		return err
	case before.Enabled == on && before.Pending == on:
		return nil
	case before.NeedsReset:
		return resetFirst(b)
	}
	if err := q.enforceMIGMode(b, on); err != nil {
		if back := s.takeBack(q, b, before.Enabled); back != nil {
			return fmt.Errorf("%w; reverting the change: %w", err, back)
		}
		return err
	}
	return s.renew(q, b, on)
}

// takeBack asks for the mode that was before: what a driver could not do it keeps as pending and does at the next reset, which nothing
// expects. When the caller has given up on the change, it waits for that to come back first.
func (s *Session) takeBack(q query, b *board, on bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), takeBackTime)
	defer cancel()
	q.ctx = ctx
	if err := s.gate.Idle(ctx, q.on); err != nil {
		return err
	}
	if err := q.setMIGMode(b, on); err != nil {
		return err
	}
	return s.renew(q, b, on) // the change may have come about after all
}

// resetFirst refuses a change that only a reset brings about.
func resetFirst(b *board) error {
	return &gpu.UnsupportedError{Feature: "changing the MIG mode of " + b.facts.Product.Name, Needs: "a reset of the GPU"}
}

// enforceMIGMode sets a mode and sees that it is in force.
func (q query) enforceMIGMode(b *board, on bool) error {
	if err := q.setMIGMode(b, on); err != nil {
		return err
	}
	after, err := q.migMode(b)
	if err != nil {
		return err
	}
	if after.Enabled != on {
		return fmt.Errorf("setting the MIG mode of %s: the driver reported success, but the mode did not change: %w", q.on, gpu.ErrInUse)
	}
	return nil
}

// setMIGMode asks for a mode and reports why it is not in force.
func (q query) setMIGMode(b *board, on bool) error {
	const symbol = "nvmlDeviceSetMigMode"
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, err := must(q, symbol, func() (nvml.Return, nvml.Return) { return q.device.SetMigMode(mode) })
	if err != nil {
		return err
	}
	if activation == nvml.ERROR_RESET_REQUIRED {
		return resetFirst(b)
	}
	if err := library.AsError(symbol, activation); err != nil {
		return fmt.Errorf("%s on %s: not in force yet: %w", symbol, q.on, err)
	}
	return nil
}

// renew takes a new handle of a GPU that was reset, and its minor number, which may be another one now that MIG is on or off. Where it does
// not answer, the next inspection reads all of it again.
func (s *Session) renew(q query, b *board, on bool) error {
	fresh := *b
	err := q.identify(&fresh, on)
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.boards[b.facts.Index]
	switch {
	case !ok || known.facts.UUID != b.facts.UUID:
	case err != nil:
		delete(s.boards, b.facts.Index)
	default:
		known.device, known.facts.Minor, known.mode = fresh.device, fresh.facts.Minor, fresh.mode
		s.boards[b.facts.Index] = known
	}
	return err
}

// identify reads the handle and the minor number of a GPU whose MIG mode is now on or off. On an error the board is as it was.
func (q query) identify(b *board, on bool) error {
	handle, err := must(q, "nvmlDeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) {
		return q.session.lib.DeviceGetHandleByUUID(string(b.facts.UUID))
	})
	if err != nil {
		return err
	}
	minor, err := must(q, minorNumber, handle.GetMinorNumber) // one that is only unknown now may have changed
	var unsupported *gpu.UnsupportedError
	if errors.As(err, &unsupported) {
		minor, err = gpu.UnknownMinor, nil
	}
	if err == nil {
		b.device, b.facts.Minor, b.mode = handle, minor, on
	}
	return err
}

// CreateInstance makes a GPU instance of the profile with that driver's id, at that placement, and returns its id. gpu.ErrInUse:
// it does not fit next to those that exist, or another program keeps the driver from it, and nothing was made. After any other error it may be
// there.
func (s *Session) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (int, error) {
	q, b, done, err := s.change(ctx, id)
	if err != nil {
		return 0, err
	}
	defer done()
	p, err := b.profile(q, profile)
	if err != nil {
		return 0, err
	}
	placement := nvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)} //nolint:gosec // from NVML
	handle, err := must(q, "nvmlDeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
		return q.device.CreateGpuInstanceWithPlacement(&p.info, &placement)
	})
	if err != nil {
		return 0, err
	}
	made, err := must(q, "nvmlGpuInstanceGetInfo", handle.GetInfo)
	if errors.Is(err, gpu.ErrInUse) {
		err = fmt.Errorf("the GPU instance was created, but its ID is %w (%v)", gpu.ErrNotFound, err) //nolint:errorlint // that would say that it was not made
	}
	return int(made.Id), err
}

// profile finds a profile of the board by the driver's id.
func (b *board) profile(q query, id int) (*profile, error) {
	i := slices.IndexFunc(b.profiles, func(p profile) bool { return p.facts.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("finding MIG profile %d on %s: %w", id, q.on, gpu.ErrNotFound)
	}
	return &b.profiles[i], nil
}

// uuidOf finds the UUID of a compute instance that was just made. It is that of its MIG device, which only the list of them shows:
// the compute instance's own handle names its GPU.
func (q query) uuidOf(gi, ci int) (uuid gpu.MIGUUID, err error) {
	err = q.migDevices(func(handle nvml.Device) (bool, error) {
		in, err := must(q, "nvmlDeviceGetGpuInstanceId", vanished(handle.GetGpuInstanceId))
		if err != nil || in != gi {
			return true, err
		}
		id, err := must(q, "nvmlDeviceGetComputeInstanceId", vanished(handle.GetComputeInstanceId))
		if err != nil || id != ci {
			return true, err
		}
		text, err := must(q, "nvmlDeviceGetUUID", vanished(handle.GetUUID))
		uuid = gpu.MIGUUID(text)
		return false, err
	})
	if err == nil && uuid == "" {
		err = fmt.Errorf("compute instance %d of GPU instance %d was created, but its MIG device is missing: %w", ci, gi, gpu.ErrNotFound)
	}
	return uuid, err
}

// CreateComputeInstance makes the compute instance that has all multiprocessors of the GPU instance.
func (s *Session) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (gpu.ComputeInstance, error) {
	none := gpu.ComputeInstance{}
	q, b, done, err := s.change(ctx, id)
	if err != nil {
		return none, err
	}
	defer done()
	instance, info, err := q.instance(gi)
	if err != nil {
		return none, err
	}
	p, err := b.profile(q, int(info.ProfileId))
	if err != nil {
		return none, err
	}
	filling, err := q.filling(instance, p)
	if err != nil {
		return none, err
	}
	handle, err := must(q, "nvmlGpuInstanceCreateComputeInstance", func() (nvml.ComputeInstance, nvml.Return) {
		return instance.CreateComputeInstance(&filling)
	})
	if err != nil {
		return none, err
	}
	made, err := must(q, "nvmlComputeInstanceGetInfo_v2", handle.GetInfo)
	if err != nil {
		return none, err
	}
	uuid, err := q.uuidOf(gi, int(made.Id))
	return gpu.ComputeInstance{ID: int(made.Id), Slices: int(filling.SliceCount), UUID: uuid}, err
}

// instance finds a GPU instance and what it is; gpu.ErrNotFound: there is none with that id.
func (q query) instance(gi int) (nvml.GpuInstance, nvml.GpuInstanceInfo, error) {
	handle, err := q.instanceHandle(gi)
	if err != nil {
		return nil, nvml.GpuInstanceInfo{}, err
	}
	info, err := must(q, "nvmlGpuInstanceGetInfo", vanished(handle.GetInfo))
	return handle, info, err
}

// instanceHandle takes it for "no such instance" that the GPU is not in MIG mode.
func (q query) instanceHandle(gi int) (nvml.GpuInstance, error) {
	return must(q, "nvmlDeviceGetGpuInstanceById", vanished(func() (nvml.GpuInstance, nvml.Return) {
		handle, ret := q.device.GetGpuInstanceById(gi)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			ret = nvml.ERROR_NOT_FOUND
		}
		return handle, ret
	}))
}

// DestroyComputeInstance removes a compute instance. gpu.ErrNotFound: it is not there; gpu.ErrInUse: a process runs on it.
func (s *Session) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	q, _, done, err := s.change(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	instance, err := q.instanceHandle(gi)
	if err != nil {
		return err
	}
	handle, err := must(q, "nvmlGpuInstanceGetComputeInstanceById", func() (nvml.ComputeInstance, nvml.Return) {
		return instance.GetComputeInstanceById(ci)
	})
	if err != nil {
		return err
	}
	return q.do("nvmlComputeInstanceDestroy", handle.Destroy)
}

// DestroyInstance removes a GPU instance. gpu.ErrNotFound: it is not there; gpu.ErrInUse: it has a compute instance, or
// the driver refuses it as in use.
func (s *Session) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	q, b, done, err := s.change(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	instance, err := q.instanceHandle(gi)
	if err != nil {
		return err
	}
	if err := q.do("nvmlGpuInstanceDestroy", instance.Destroy); err != nil {
		return err
	}
	s.dropInstance(b, gi)
	return nil
}

// dropInstance takes an instance that was removed out of what an inspection returns that does not ask: by then no record names it any more, so
// it would seem to be an administrator's.
func (s *Session) dropInstance(b *board, gi int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.boards[b.facts.Index]
	if !ok || known.facts.UUID != b.facts.UUID || known.facts.MIG == nil {
		return
	}
	left := *known.facts.MIG
	left.Instances = slices.DeleteFunc(slices.Clone(left.Instances), func(i gpu.Instance) bool { return i.ID == gi })
	if len(left.Instances) == 0 {
		left.Instances = nil // as an inspection returns it
	}
	known.facts.MIG = &left
	s.boards[b.facts.Index] = known
}

// do makes a call that answers nothing.
func (q query) do(symbol string, fn func() nvml.Return) error {
	_, err := must(q, symbol, func() (struct{}, nvml.Return) { return struct{}{}, fn() })
	return err
}
