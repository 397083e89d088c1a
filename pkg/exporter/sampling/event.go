package sampling

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// eventSet is the target of waiting calls, so that they delay no other call.
const eventSet library.Target = "the event set"

// events is the event set of a session. It contains the GPUs that were listed at the first wait.
type events struct {
	set nvml.EventSet
	ids map[nvml.Device]gpu.UUID
}

// NextXID waits up to that time for an XID; without one, the UUID is empty. It may run concurrently with calls on GPUs.
func (d *Driver) NextXID(ctx context.Context, wait time.Duration) (gpu.UUID, metrics.XID, error) {
	if err := d.register(ctx); err != nil {
		return "", metrics.XID{}, err
	}
	// The driver takes whole milliseconds, and callers wait far less than a minute.
	milliseconds := uint32(min(wait, time.Minute).Milliseconds()) //nolint:gosec // it is
	call := library.Call{On: eventSet, Name: "nvmlEventSetWait_v2", Limit: wait + d.opts.Deadline}
	var quiet bool
	set := d.events.set
	data, err := library.Ask(ctx, d.session, call, func() (nvml.EventData, nvml.Return) {
		data, ret := set.Wait(milliseconds)
		if ret == nvml.ERROR_TIMEOUT {
			quiet, ret = true, nvml.SUCCESS
		}
		return data, ret
	})
	if err != nil || quiet || data.EventType != nvml.EventTypeXidCriticalError {
		return "", metrics.XID{}, err
	}
	xid := metrics.XID{Code: data.EventData, GPUInstance: -1}
	if data.GpuInstanceId != math.MaxUint32 {
		xid.GPUInstance = int(data.GpuInstanceId)
	}
	return d.events.ids[data.Device], xid, nil
}

// register creates the event set and adds the GPUs that are not in it.
func (d *Driver) register(ctx context.Context) error {
	if d.events.set == nil {
		call := library.Call{On: eventSet, Name: "nvmlEventSetCreate", Limit: d.opts.Deadline}
		set, err := library.Ask(ctx, d.session, call, d.lib.EventSetCreate)
		if err != nil {
			return err
		}
		d.events = events{set: set, ids: map[nvml.Device]gpu.UUID{}}
	}
	for id, handle := range d.present() {
		if _, added := d.events.ids[handle]; added {
			continue
		}
		set, call := d.events.set, library.Call{On: library.Target("events of " + id), Name: "nvmlDeviceRegisterEvents", Limit: d.opts.Deadline}
		_, err := library.Ask(ctx, d.session, call, func() (none, nvml.Return) {
			return none{}, handle.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		})
		if errors.Is(err, gpu.ErrDriverNotLoaded) || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, gpu.ErrTimeout) {
			continue // again, when it answers
		}
		d.events.ids[handle] = id
	}
	return nil
}

// present returns the handles of the GPUs.
func (d *Driver) present() map[gpu.UUID]nvml.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	handles := make(map[gpu.UUID]nvml.Device, len(d.listed))
	for id, g := range d.listed {
		handles[id] = g.handle
	}
	return handles
}

// closeEvents frees the event set once no call waits on it.
func (d *Driver) closeEvents(ctx context.Context) {
	if d.events.set == nil || d.session.Gate().Idle(ctx, eventSet) != nil {
		return
	}
	_, _ = library.Ask(ctx, d.session, library.Call{On: eventSet, Name: "nvmlEventSetFree", Limit: d.opts.Deadline},
		func() (none, nvml.Return) { return none{}, d.events.set.Free() })
	d.events = events{}
}
