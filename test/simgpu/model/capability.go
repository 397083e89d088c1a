package model

import "slices"

// The driver numbers all possible MIG capabilities: two for the node, then 15 GPU instances of 8 compute instances for each of 32 GPUs. The
// number is the minor of a device node, which a process needs to use the capability.
const (
	ConfigCapability  uint32 = 1 // to create and destroy instances
	MonitorCapability uint32 = 2 // to see all MIG devices

	MaxGPUInstances     = 15 // of a GPU
	MaxComputeInstances = 8  // of a GPU instance

	firstCapability = 3
)

// GPUInstanceCapability is the capability of a GPU instance on the GPU with that minor.
func GPUInstanceCapability(gpuMinor int, gi uint32) uint32 {
	return firstCapability + (uint32(gpuMinor)*MaxGPUInstances+gi)*(1+MaxComputeInstances)
}

// ComputeInstanceCapability is the capability of a compute instance in a GPU instance.
func ComputeInstanceCapability(gpuMinor int, gi, ci uint32) uint32 {
	return GPUInstanceCapability(gpuMinor, gi) + 1 + ci
}

// DeviceNodes are the device nodes that a process can open.
type DeviceNodes struct {
	Minors       []int    // of GPUs
	Capabilities []uint32 // of MIG
}

// may reports whether the session can change MIG devices and list all instances.
func (s *Session) may(root bool) bool {
	return root && slices.Contains(s.capabilities, ConfigCapability)
}

// shows reports whether the session sees the MIG device of a compute instance: without a capability for all MIG devices, it needs the
// capabilities of the GPU instance and of the compute instance.
func (s *Session) shows(g *gpu, gi *gpuInstance, ci *computeInstance) bool {
	has := func(capability uint32) bool { return slices.Contains(s.capabilities, capability) }
	return has(ConfigCapability) || has(MonitorCapability) ||
		has(GPUInstanceCapability(g.id.Minor, gi.id)) && has(ComputeInstanceCapability(g.id.Minor, gi.id, ci.id))
}
