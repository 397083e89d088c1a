package sampling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// GPUs lists the GPUs by index, and GPUs that do not answer as faults. GPUs that were listed before are not asked again: their last facts
// are returned, and calls on them continue in the meantime.
func (d *Driver) GPUs(ctx context.Context) ([]metrics.Identity, []gpu.Fault, error) {
	count, err := library.Ask(ctx, d.session, library.Call{On: library.WholeDriver, Name: "nvmlDeviceGetCount_v2", Limit: d.opts.Deadline},
		d.lib.DeviceGetCount)
	if err != nil {
		return nil, nil, fmt.Errorf("listing GPUs: %w", err)
	}
	known := d.identities()
	found, faults := make([]*device, count), make([]gpu.Fault, count)
	var all sync.WaitGroup // a GPU that hangs delays the others for one deadline at most
	for index := range count {
		if _, listed := known[index]; listed {
			continue
		}
		all.Go(func() {
			g := &device{driver: d, on: library.GPUAt(index), identity: metrics.Identity{Index: index}}
			if err := g.identify(ctx); err != nil {
				faults[index] = gpu.Fault{Index: index, UUID: g.identity.UUID, BusID: g.identity.PCIBusID, Err: err}
				return
			}
			found[index] = g
		})
	}
	all.Wait()
	var identities []metrics.Identity
	var broken []gpu.Fault
	for index, g := range found {
		identity, listed := known[index]
		switch {
		case listed:
			identities = append(identities, identity)
		case g != nil:
			identities = append(identities, g.identity)
		case errors.Is(faults[index].Err, gpu.ErrDriverNotLoaded):
			return nil, nil, fmt.Errorf("listing GPUs: %w", faults[index].Err)
		default:
			broken = append(broken, faults[index])
		}
	}
	d.add(found)
	return identities, broken, nil
}

// identities returns the identities of the listed GPUs, by index.
func (d *Driver) identities() map[int]metrics.Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[int]metrics.Identity, len(d.listed))
	for _, g := range d.listed {
		known[g.identity.Index] = g.identity
	}
	return known
}

// add adds the GPUs that were found; entries of other GPUs are nil.
func (d *Driver) add(found []*device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range found {
		if g != nil {
			d.devices[g.identity.UUID], d.listed[g.identity.UUID] = g, listed{g.handle, g.identity}
		}
	}
}

// identify reads the facts that do not change while the driver is loaded and the MIG mode stays.
func (g *device) identify(ctx context.Context) error {
	g.unsupported = map[string]bool{}
	handle, err := must(ctx, g, "nvmlDeviceGetHandleByIndex_v2", func() (nvml.Device, nvml.Return) {
		return g.driver.lib.DeviceGetHandleByIndex(g.identity.Index)
	})
	if err != nil {
		return err
	}
	g.handle = handle
	id := &g.identity
	uuid, err := must(ctx, g, "nvmlDeviceGetUUID", handle.GetUUID)
	if err != nil {
		return err
	}
	id.UUID = gpu.UUID(uuid)
	pci, err := must(ctx, g, "nvmlDeviceGetPciInfo_v3", handle.GetPciInfo)
	if err != nil {
		return err
	}
	id.PCIBusID = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	minor, known, err := value(ctx, g, "nvmlDeviceGetMinorNumber", handle.GetMinorNumber)
	if err != nil {
		return err
	}
	if known {
		id.Device = fmt.Sprintf("nvidia%d", minor)
	}
	name, _, err := value(ctx, g, "nvmlDeviceGetName", handle.GetName)
	if err != nil {
		return err
	}
	id.Name = strings.TrimSpace(name)
	id.DriverVersion, id.CUDAVersion, id.NVMLVersion = g.driver.version.Version, g.driver.version.CUDAVersion, g.driver.nvml
	if err := g.describe(ctx); err != nil {
		return err
	}
	return g.capabilities(ctx)
}

// describe reads the facts that a GPU may not report.
func (g *device) describe(ctx context.Context) error {
	id := &g.identity
	type version struct{ major, minor int }
	capability, versioned, err := value(ctx, g, "nvmlDeviceGetCudaComputeCapability", func() (version, nvml.Return) {
		major, minor, ret := g.handle.GetCudaComputeCapability()
		return version{major, minor}, ret
	})
	if err != nil {
		return err
	}
	brand, known, err := value(ctx, g, "nvmlDeviceGetBrand", g.handle.GetBrand)
	if err != nil {
		return err
	}
	if known {
		id.Brand = library.BrandName(brand)
	}
	architecture, known, err := value(ctx, g, "nvmlDeviceGetArchitecture", g.handle.GetArchitecture)
	if err != nil {
		return err
	}
	if known || versioned {
		id.Architecture = library.ArchitectureName(architecture, capability.major, capability.minor)
	}
	if id.Serial, _, err = value(ctx, g, "nvmlDeviceGetSerial", g.handle.GetSerial); err != nil {
		return err
	}
	if id.VBIOS, _, err = value(ctx, g, "nvmlDeviceGetVbiosVersion", g.handle.GetVbiosVersion); err != nil {
		return err
	}
	if id.InfoROM, _, err = value(ctx, g, "nvmlDeviceGetInforomImageVersion", g.handle.GetInforomImageVersion); err != nil {
		return err
	}
	for object, version := range map[nvml.InforomObject]*string{
		nvml.INFOROM_OEM: &id.InfoROMOEM, nvml.INFOROM_ECC: &id.InfoROMECC, nvml.INFOROM_POWER: &id.InfoROMPower,
	} {
		question := fmt.Sprintf("InfoROM object %d", object)
		if *version, _, err = valueAs(ctx, g, question, "nvmlDeviceGetInforomVersion", func() (string, nvml.Return) {
			return g.handle.GetInforomVersion(object)
		}); err != nil {
			return err
		}
	}
	return nil
}

// capabilities reads whether MIG mode is on and whether GPM is supported.
func (g *device) capabilities(ctx context.Context) error {
	mode, err := g.migMode(ctx)
	if err != nil {
		return err
	}
	g.identity.MIGMode, g.identity.GPM = mode, false
	if g.driver.session.Has(gpmSymbols...) {
		support, ok, err := value(ctx, g, "nvmlGpmQueryDeviceSupport", g.handle.GpmQueryDeviceSupport)
		if err != nil {
			return err
		}
		g.identity.GPM = ok && support.IsSupportedDevice != 0
	}
	return nil
}
