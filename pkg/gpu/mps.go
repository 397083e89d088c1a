package gpu

import "slices"

// MPSSharing says how claims share a GPU with MPS, as the node's configuration says it for that GPU.
type MPSSharing struct {
	MPSSize
	// ShareName is what the node's configuration calls the shares; empty without a name.
	ShareName string
	// Resource is the extended resource that requests one, as "nvidia.com/gpu-2gb"; empty without one.
	Resource string
	// ShmBytes is the size of the /dev/shm that the clients share. It applies to the next control daemon.
	ShmBytes int64
	// Namespaces are those whose claims may have a share; empty for all.
	Namespaces []string
}

// MPSSize says how much of a GPU its shares may have. Values are comparable.
type MPSSize struct {
	// Replicas is how many claims there may be, 1 or more.
	Replicas int
	// Memory bounds the memory of a share.
	Memory MPSMemory
	// Threads bounds the active thread percentage of a share.
	Threads MPSThreads
}

// MPSMemory bounds the memory of shares, in bytes. All are multiples of 1 MiB, and Min ≤ Default ≤ Max ≤ Total.
type MPSMemory struct {
	// Total is the most that all shares may have together.
	Total int64
	// Default is what a request without a value gets.
	Default int64
	// Min and Max bound one share, which has Min or a multiple of Step more.
	Min, Max, Step int64
}

// MPSThreads bounds the active thread percentages of shares.
type MPSThreads struct {
	// Default is what a request without a value gets; 0 is no limit.
	Default int
	// Total is the most that all shares may have together; more than 100 oversubscribes the SMs.
	Total int
}

// equal reports whether both advertise the same shares; nil is without shares. What only the next claim or the next control daemon sees
// does not count.
func (m *MPSSharing) equal(other *MPSSharing) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.MPSSize == other.MPSSize && m.ShareName == other.ShareName && m.Resource == other.Resource
}

// Allows reports whether claims of the namespace may have a share.
func (m *MPSSharing) Allows(namespace string) bool {
	return len(m.Namespaces) == 0 || slices.Contains(m.Namespaces, namespace)
}

// MPSShare is a GPU that several claims share with MPS.
type MPSShare struct {
	GPU *GPU
	// Size says how much of the GPU its shares may have.
	Size MPSSize
	// ShareName is what the node's configuration calls them; empty without a name.
	ShareName string
}

// Name is "gpu-<id>-mps".
func (d MPSShare) Name() DeviceName { return DeviceName("gpu-" + d.GPU.ID + "-mps") }

// Type is TypeMPS.
func (MPSShare) Type() DeviceType { return TypeMPS }

// Parent is the GPU that is shared.
func (d MPSShare) Parent() *GPU { return d.GPU }

// ID is the GPU's UUID.
func (d MPSShare) ID() string { return string(d.GPU.UUID) }

// ProfileName is empty.
func (MPSShare) ProfileName() string { return "" }

// Capacity is the GPU's, with the memory that shares may have together.
func (d MPSShare) Capacity() Capacity {
	c := d.GPU.Capacity
	c.MemoryBytes = uint64(max(d.Size.Memory.Total, 0))
	return c
}

// Shares are the replicas.
func (d MPSShare) Shares() Shares { return Shares{Count: d.Size.Replicas, Name: d.ShareName} }

// Use is the GPU beside other MPS shares of it.
func (d MPSShare) Use(share bool) Use { return Use{Type: TypeMPS, Device: d.Name(), Shared: share} }

// mpsDevices is the GPU for several claims with MPS, where it is advertised so.
func mpsDevices(o Modes, g *GPU) []Device {
	if o.MPS == nil {
		return nil
	}
	return o.available(MPSShare{GPU: g, Size: o.MPS.MPSSize, ShareName: o.MPS.ShareName})
}
