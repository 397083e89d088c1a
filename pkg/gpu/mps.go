package gpu

import (
	"fmt"
	"slices"
)

// Clients of MPS on one GPU: from CUDA 13.1 on there may be more.
const (
	mpsClients     = 48
	mpsMoreClients = 60
)

// MPSClients is how many clients MPS of the driver supports on a GPU.
func (d Driver) MPSClients() int {
	var major, minor int
	if n, err := fmt.Sscanf(d.CUDAVersion, "%d.%d", &major, &minor); err == nil && n == 2 && (major > 13 || major == 13 && minor >= 1) {
		return mpsMoreClients
	}
	return mpsClients
}

// SupportsMPS reports whether MPS isolates and limits its clients on the GPU, as it does from compute capability 7.0 on. A GPU without a
// known compute capability counts as one that does.
func (p Product) SupportsMPS() bool {
	var major, minor int
	n, err := fmt.Sscanf(p.ComputeCapability, "%d.%d", &major, &minor)
	return err != nil || n < 2 || major >= 7
}

// MPSSharing says how claims share a GPU with MPS, as the node's configuration says it for that GPU.
//
// A change of its size or name is another layout: it waits until all shares are released, and so for the next control daemon. The other
// fields apply at once.
type MPSSharing struct {
	MPSSize
	// ShareName is the name of the shares in the node's configuration; empty without a name.
	ShareName string
	// Resource is the extended resource that requests one, as "nvidia.com/gpu-2gb"; empty without one.
	Resource string
	// ShmBytes is the size of the /dev/shm that the clients share. It applies to the next control daemon.
	ShmBytes int64
	// Namespaces are the namespaces whose claims may get a share; empty for all.
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
	// Default applies to a request without a value.
	Default int64
	// Min and Max bound one share, which has Min or a multiple of Step more.
	Min, Max, Step int64
}

// MPSThreads bounds the active thread percentages of shares.
type MPSThreads struct {
	// Default applies to a request without a value; 0 is no limit.
	Default int
	// Total is the most that all shares may have together; more than 100 oversubscribes the SMs.
	Total int
}

// equal reports whether both advertise the same shares; nil is without shares. Settings that only the next claim or the next control
// daemon sees do not count.
func (m *MPSSharing) equal(other *MPSSharing) bool {
	if m == nil || other == nil {
		return m == other
	}
	return m.MPSSize == other.MPSSize && m.ShareName == other.ShareName && m.Resource == other.Resource
}

// withSettings is the sharing with the settings of another one that change no device: shmSize and namespaces. Either may be nil.
func (m *MPSSharing) withSettings(of *MPSSharing) *MPSSharing {
	if m == nil || of == nil {
		return m
	}
	with := *m
	with.ShmBytes, with.Namespaces = of.ShmBytes, of.Namespaces
	return &with
}

// WithSettings are the modes of the GPU with those settings of other modes that apply to it without another layout. Claims of a GPU whose
// layout changes are planned with them.
func (o Modes) WithSettings(of Modes) Modes {
	o.MPS, o.MemoryBytes = o.MPS.withSettings(of.MPS), of.MemoryBytes
	return o
}

// Allows reports whether claims of the namespace may get a share.
func (m *MPSSharing) Allows(namespace string) bool {
	return len(m.Namespaces) == 0 || slices.Contains(m.Namespaces, namespace)
}

// TypeMPS is a GPU that several claims share with MPS.
const TypeMPS DeviceType = "mps"

// MPSShare is a GPU that several claims share with MPS.
type MPSShare struct {
	GPU *GPU
	// Size says how much of the GPU its shares may have.
	Size MPSSize
	// ShareName is their name in the node's configuration; empty without a name.
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

// Shares are the replicas, even if there is only one: its claim requests as much memory as it needs, and is limited to that.
func (d MPSShare) Shares() Shares {
	return Shares{Count: d.Size.Replicas, Name: d.ShareName, Consumable: true}
}

// Use is the GPU beside other MPS shares of it.
func (d MPSShare) Use(share bool) Use { return Use{Type: TypeMPS, Device: d.Name(), Shared: share} }

// mpsDevices is the GPU for several claims with MPS, if it is advertised so.
func mpsDevices(o Modes, g *GPU) []Device {
	if o.MPS == nil {
		return nil
	}
	return o.available(MPSShare{GPU: g, Size: o.MPS.MPSSize, ShareName: o.MPS.ShareName})
}
