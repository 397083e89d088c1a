package gpu

// Additional lists the kinds of devices that a node advertises in addition to the layouts of its GPUs. Containers use no GPU with such a
// device alone, so it has no counters, and a claim may have it in addition to any other device. All of them are in Monitor.Pool.
type Additional struct {
	// Monitor: one device for the node.
	Monitor bool
	// Perfmon: one device for each GPU.
	Perfmon bool
}

// Devices lists the devices of a node with these GPUs.
func (a Additional) Devices(gpus []GPU) []Device {
	var devices []Device
	if a.Monitor && len(gpus) > 0 {
		devices = append(devices, Monitor{})
	}
	for i := range gpus {
		if a.Perfmon {
			devices = append(devices, Perfmon{GPU: &gpus[i]})
		}
	}
	return devices
}

// UsesGPU reports whether containers use a GPU with a device of the type. It is true for the types of later versions.
func (t DeviceType) UsesGPU() bool { return t != TypeMonitor && t != TypePerfmon }
