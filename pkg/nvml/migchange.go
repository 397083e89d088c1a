package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// changeDeadline limits a call that changes the partitioning of a GPU: it resets a part of the board or the whole board.
const changeDeadline = 30 * time.Second

// takeBackTime limits reverting a change of the MIG mode. It applies even after the caller's context has ended.
const takeBackTime = 10 * time.Second

// change prepares a change of the GPU. During the change inspections skip this GPU: a board that is being reset would seem broken.
func (s *Session) change(ctx context.Context, id gpu.UUID) (q query, b *board, done func(), err error) {
	change := s.changes(id)
	change.Lock()
	q, b, err = s.at(ctx, id) // the previous change may have brought a new handle
	if err != nil {
		change.Unlock()
		return q, nil, nil, err
	}
	q.limit = max(changeDeadline, s.opts.Deadline)
	change.steps.Add(1)
	return q, b, func() {
		change.steps.Add(1)
		change.Unlock()
	}, nil
}

// changes orders inspections and changes of one GPU.
type changes struct {
	sync.Mutex

	// steps counts starts and ends of changes, so it is odd during a change.
	steps atomic.Int64
}

// during reports whether a change runs, or has run since steps had that value.
func (c *changes) during(steps int64) bool { return steps%2 != 0 || c.steps.Load() != steps }

// changes returns the order of inspections and changes of one GPU.
func (s *Session) changes(id gpu.UUID) *changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changing[id] == nil {
		s.changing[id] = &changes{}
	}
	return s.changing[id]
}

// SetMIGMode enables or disables the GPU's MIG mode. It returns nil once the mode is in force. gpu.ErrInUse: a process holds the GPU, or
// instances exist. *gpu.UnsupportedError: the change needs a reset. After an error no change is pending, unless the error says so; ensuring
// this may take a few seconds longer than the context allows. Registered events would keep the GPU in use, so there are none meanwhile.
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
	resume, err := s.suspendEvents(ctx)
	if err != nil {
		return err
	}
	defer resume()
	if err := q.enforceMIGMode(b, on); err != nil {
		if back := s.takeBack(q, b, before.Enabled); back != nil {
			return fmt.Errorf("%w; reverting the change: %w", err, back)
		}
		return err
	}
	return s.renew(q, b, on)
}

// takeBack sets the previous mode again: a driver keeps a failed change as pending and would apply it, unexpectedly, at the next reset. If
// the caller has given up, it waits first until the call of the change returns.
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
	return s.renew(q, b, on) // the change may have succeeded after all
}

// resetFirst refuses a change that needs a reset.
func resetFirst(b *board) error {
	return &gpu.UnsupportedError{Feature: "changing the MIG mode of " + b.facts.Product.Name, Needs: "a reset of the GPU"}
}

// enforceMIGMode sets a mode and verifies that it is in force.
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

// setMIGMode sets a mode and returns why it is not in force.
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

// renew reads the handle and the minor number of a GPU after a reset; the minor number may change with the MIG mode. If the GPU does not
// answer, the next inspection reads all of its facts again.
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

// identify reads the handle and the minor number of a GPU whose MIG mode is now on or off. After an error the board is unchanged.
func (q query) identify(b *board, on bool) error {
	handle, err := must(q, "nvmlDeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) {
		return q.session.lib.DeviceGetHandleByUUID(string(b.facts.UUID))
	})
	if err != nil {
		return err
	}
	minor, err := must(q, minorNumber, handle.GetMinorNumber) // if it is unknown only now, it may have changed
	var unsupported *gpu.UnsupportedError
	if errors.As(err, &unsupported) {
		minor, err = gpu.UnknownMinor, nil
	}
	if err == nil {
		b.device, b.facts.Minor, b.mode = handle, minor, on
	}
	return err
}

// CreateInstance creates a GPU instance of the profile with that driver's ID, at that placement, and returns its ID. gpu.ErrInUse: it does
// not fit next to existing instances, or another program blocks it, and nothing was created. After any other error the instance may exist.
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
		err = fmt.Errorf("the GPU instance was created, but its ID is %w (%v)", gpu.ErrNotFound, err) //nolint:errorlint // wrapping ErrInUse would mean that it was not created
	}
	return int(made.Id), err
}

// profile finds a profile of the board by the driver's ID.
func (b *board) profile(q query, id int) (*profile, error) {
	i := slices.IndexFunc(b.profiles, func(p profile) bool { return p.facts.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("finding MIG profile %d on %s: %w", id, q.on, gpu.ErrNotFound)
	}
	return &b.profiles[i], nil
}

// uuidOf finds the UUID of a new compute instance, which is the UUID of its MIG device. Only the list of MIG devices shows it: the compute
// instance's own handle names its GPU.
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

// CreateComputeInstance creates the compute instance with all multiprocessors of the GPU instance.
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

// instance finds a GPU instance and its attributes; gpu.ErrNotFound: no GPU instance has that ID.
func (q query) instance(gi int) (nvml.GpuInstance, nvml.GpuInstanceInfo, error) {
	handle, err := q.instanceHandle(gi)
	if err != nil {
		return nil, nvml.GpuInstanceInfo{}, err
	}
	info, err := must(q, "nvmlGpuInstanceGetInfo", vanished(handle.GetInfo))
	return handle, info, err
}

// instanceHandle returns "no such instance" if the GPU is not in MIG mode.
func (q query) instanceHandle(gi int) (nvml.GpuInstance, error) {
	return must(q, "nvmlDeviceGetGpuInstanceById", vanished(func() (nvml.GpuInstance, nvml.Return) {
		handle, ret := q.device.GetGpuInstanceById(gi)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			ret = nvml.ERROR_NOT_FOUND
		}
		return handle, ret
	}))
}

// DestroyComputeInstance removes a compute instance. gpu.ErrNotFound: it does not exist; gpu.ErrInUse: a process runs on it.
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

// DestroyInstance removes a GPU instance. gpu.ErrNotFound: it does not exist; gpu.ErrInUse: it contains a compute instance, or the driver
// refuses it as in use.
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

// dropInstance removes an instance from the facts that an inspection returns without asking the GPU. No record names it any more, so it
// would look like an administrator's.
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

// do makes a call without a result.
func (q query) do(symbol string, fn func() nvml.Return) error {
	_, err := must(q, symbol, func() (struct{}, nvml.Return) { return struct{}{}, fn() })
	return err
}
