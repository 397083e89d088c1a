package sampling

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// maxCallsPerMIG limits the calls of a round for each MIG device, in addition to maxCalls: its handle, UUID, GPU instance, compute
// instance, name and memory, a sample of its GPU instance and the metrics of it. The first round on a GPU instance takes one more, because
// it allocates two buffers. Calls for an index without a MIG device count for the GPU, whose first round also includes unsupported calls.
const maxCallsPerMIG = 8

// migDevice is a MIG device as the last round listed it.
type migDevice struct {
	handle nvml.Device
	facts  metrics.MIGDevice
}

// migMode reports whether MIG mode is on. It is off if the GPU does not support MIG; after any other error it is unknown.
func (g *device) migMode(ctx context.Context) (bool, error) {
	const symbol = "nvmlDeviceGetMigMode"
	if g.unsupported[symbol] {
		return false, nil
	}
	mode, err := must(ctx, g, symbol, func() (int, nvml.Return) {
		current, _, ret := g.handle.GetMigMode()
		return current, ret
	})
	if g.unsupported[symbol], _ = library.Absent(ctx, symbol, err); g.unsupported[symbol] {
		return false, nil
	}
	return mode == nvml.DEVICE_MIG_ENABLE, err
}

// MIGDevices begins a round: it lists the GPU's MIG devices, without values, and returns the present identity of the GPU. It costs at most
// one call if MIG mode is off; otherwise one for each possible MIG device and four more for each MIG device.
func (d *Driver) MIGDevices(ctx context.Context, id gpu.UUID) (identity metrics.Identity, devices []metrics.MIGDevice, err error) {
	err = d.group(ctx, id, func(ctx context.Context, g *device) error {
		if err := g.begin(ctx); err != nil {
			return err
		}
		identity = g.identity
		if !identity.MIGMode {
			return nil
		}
		devices = make([]metrics.MIGDevice, len(g.migDevices))
		for i := range g.migDevices {
			devices[i] = g.migDevices[i].facts
		}
		return nil
	})
	if err != nil {
		return metrics.Identity{}, nil, err
	}
	return identity, devices, nil
}

// begin reads the MIG mode and, if it is on, the MIG devices.
func (g *device) begin(ctx context.Context) error {
	g.calls = 0
	mode, err := g.migMode(ctx)
	if fatal := library.Fatal(ctx, err); fatal != nil {
		return fatal
	}
	if err != nil {
		mode = g.identity.MIGMode // unchanged: a missing answer is no change
	}
	if mode != g.identity.MIGMode {
		if err := g.renew(ctx); err != nil {
			return err
		}
	}
	g.migDevices = g.migDevices[:0]
	if !mode {
		return nil
	}
	return g.listMIG(ctx)
}

// renew reads the GPU again after a change of its MIG mode: the handle changes, and so do the supported calls.
func (g *device) renew(ctx context.Context) error {
	for target := range g.gpm.targets {
		if err := g.release(ctx, target); err != nil {
			return err
		}
	}
	g.fields, g.rotation, g.gpm, g.processes, g.maxMIG = fieldReader{}, rotation{}, gpm{}, processReader{}, 0
	if err := g.identify(ctx); err != nil {
		return err
	}
	g.driver.mu.Lock()
	defer g.driver.mu.Unlock()
	g.driver.listed[g.identity.UUID] = listed{g.handle, g.identity}
	return nil
}

func (g *device) listMIG(ctx context.Context) error {
	if g.maxMIG == 0 {
		count, _, err := value(ctx, g, "nvmlDeviceGetMaxMigDeviceCount", g.handle.GetMaxMigDeviceCount)
		if err != nil {
			return err
		}
		g.maxMIG = count
	}
	for index := range g.maxMIG {
		own := g.calls
		handle, ok, err := passing(ctx, g, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return g.handle.GetMigDeviceHandleByIndex(index)
		})
		if err != nil {
			return err
		}
		if !ok {
			continue // there is none at this index
		}
		if err := g.inspectMIG(ctx, handle); err != nil {
			return err
		}
		g.calls = own
	}
	slices.SortFunc(g.migDevices, func(a, b migDevice) int {
		return cmp.Or(cmp.Compare(a.facts.GPUInstance, b.facts.GPUInstance), cmp.Compare(a.facts.ComputeInstance, b.facts.ComputeInstance))
	})
	return nil
}

// inspectMIG adds a MIG device, unless it is destroyed in the meantime. Each round reads all of its facts: another device may have got the
// same placement and UUID.
func (g *device) inspectMIG(ctx context.Context, handle nvml.Device) error {
	uuid, there, err := passing(ctx, g, "nvmlDeviceGetUUID", handle.GetUUID)
	if err != nil || !there {
		return err
	}
	instance, there, err := passing(ctx, g, "nvmlDeviceGetGpuInstanceId", handle.GetGpuInstanceId)
	if err != nil || !there {
		return err
	}
	compute, there, err := passing(ctx, g, "nvmlDeviceGetComputeInstanceId", handle.GetComputeInstanceId)
	if err != nil || !there {
		return err
	}
	name, there, err := passing(ctx, g, "nvmlDeviceGetName", handle.GetName)
	if err != nil || !there {
		return err
	}
	_, profile, _ := strings.Cut(name, " MIG ")
	g.migDevices = append(g.migDevices, migDevice{handle: handle, facts: metrics.MIGDevice{
		UUID: gpu.UUID(uuid), Profile: profile, GPUInstance: instance, ComputeInstance: compute,
	}})
	return nil
}

// MIGValues reads the MIG device's own fields without GPM, which is its memory, in one call.
func (d *Driver) MIGValues(ctx context.Context, id gpu.UUID, m *metrics.MIGDevice, fields metrics.FieldSet) error {
	if !fields.Meets(memoryFields) {
		return nil
	}
	return d.group(ctx, id, func(ctx context.Context, g *device) error {
		for i := range g.migDevices {
			if at := &g.migDevices[i]; at.facts.UUID == m.UUID {
				var buffer [4]reading
				readings, err := readMemory(ctx, g, at.handle, true, buffer[:0])
				set(readings, fields, &m.Values)
				return err
			}
		}
		return nil
	})
}
