package inventory

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// locate adds the host's facts to the GPUs, and the identities of the GPUs to the faults. A GPU with an unknown device node is a fault: no
// container could use it. The caller holds inspecting.
func (i *Inventory) locate(root hostfs.DriverRoot, found []gpu.GPU, faults []gpu.Fault) ([]gpu.GPU, []gpu.Fault) {
	located, broken := make([]gpu.GPU, 0, len(found)), slices.Clone(faults)
	for _, g := range found {
		g.PCI = i.opts.Host.PCI(g.PCI.BusID)
		g.MemoryLimits = g.MemoryLimits && i.opts.MemoryLimits
		if err := i.complete(&g); err != nil {
			broken = append(broken, gpu.Fault{Index: g.Index, UUID: g.UUID, BusID: g.PCI.BusID, Err: err})
			continue
		}
		g.MissingNode = i.missingNode(root, &g)
		located = append(located, g)
	}
	return located, gpu.Recall(broken, i.absent(located))
}

// absent returns the GPUs of earlier inspections that are not in now, and remembers the GPUs in now.
func (i *Inventory) absent(now []gpu.GPU) (absent []gpu.GPU) {
	for _, g := range now {
		i.seen[g.UUID] = g
	}
	for id, g := range i.seen {
		if !slices.ContainsFunc(now, func(other gpu.GPU) bool { return other.UUID == id }) {
			absent = append(absent, g)
		}
	}
	return absent
}

// missingNode returns the first device node that containers with the GPU need and the host lacks.
func (i *Inventory) missingNode(root hostfs.DriverRoot, g *gpu.GPU) string {
	for _, node := range append([]string{g.DeviceNode()}, gpu.ControlNodes...) {
		path := filepath.Join(root.DevHostPath, node)
		if _, err := i.opts.Host.CharDevice(path); err != nil {
			return path
		}
	}
	return ""
}

// complete asks the host for facts that the driver's library does not report. Unknown memory stays 0.
func (i *Inventory) complete(g *gpu.GPU) (err error) {
	if g.UnifiedMemory && g.Capacity.MemoryBytes == 0 {
		g.Capacity.MemoryBytes, _ = i.opts.Host.SystemMemory() // an unknown size is 0
	}
	if g.Minor != gpu.UnknownMinor {
		return nil
	}
	if g.Minor, err = i.opts.Host.GPUMinor(g.PCI.BusID); err != nil {
		return fmt.Errorf("device node unknown: NVML does not report the minor number, and %w", err)
	}
	return nil
}
