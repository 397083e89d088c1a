package plugin

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/extradevices"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// SpecBuilder returns the builder of the CDI specs of claims. It reads the inventory for each spec. Extra are the devices that containers
// get besides GPUs; nil for none.
func SpecBuilder(host DeviceNodes, inv *inventory.Inventory, extra *extradevices.Finder) *cdi.SpecBuilder {
	return &cdi.SpecBuilder{
		Present: func() cdi.Present {
			view := inv.Current()
			present := cdi.Present{Node: view.Node, Common: view.Common, DevRoot: view.Root.DevHostPath}
			if extra != nil {
				present.Extra, present.ExtraMounts = extra.Nodes(), extra.Mounts(view.Root.HostPath)
			}
			return present
		},
		Stat: func(path string) (major, minor int64, err error) {
			device, err := host.CharDevice(path)
			return int64(device.Major), int64(device.Minor), err
		},
		Capabilities: func(minor int, id gpu.MIGIdentity) ([]cdi.DeviceNode, error) {
			devices, err := host.MIGNodes(minor, id.GPUInstance, id.ComputeInstance)
			nodes := make([]cdi.DeviceNode, 0, len(devices))
			for _, d := range devices {
				nodes = append(nodes, deviceNode(d))
			}
			return nodes, err
		},
		Monitoring: func() (cdi.DeviceNode, error) {
			d, err := host.MIGMonitorNode()
			return deviceNode(d), err
		},
		Graphics: host.GraphicsNodes,
		Exists: func(path string) error {
			if _, found := host.Locate("/", path); !found {
				return fmt.Errorf("%s on the host: %w", path, gpu.ErrNotFound)
			}
			return nil
		},
	}
}

func deviceNode(d hostfs.CharDevice) cdi.DeviceNode {
	return cdi.DeviceNode{Path: d.Path, HostPath: d.Path, Major: int64(d.Major), Minor: int64(d.Minor)}
}
