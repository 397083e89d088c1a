package clusterview

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPU is a physical GPU of a driver of Prism: the devices whose names begin with its name.
type GPU struct {
	Node *Node
	// Name begins the names of the devices: "gpu-5d3f61a2".
	Name string
	UUID string
	// Index is unknown for a GPU that is advertised only as MIG devices that are made for claims.
	Index                  *int64
	Product, DriverVersion string
	// Memory is the memory of the whole GPU, Free the memory that no claim holds, in bytes.
	Memory, Free int64
	// MemorySlices is the number of memory slices of a GPU that can be partitioned; otherwise 0.
	MemorySlices int
	// Parts are the devices in use: MIG devices by their first memory slice, before other types.
	Parts []Part
	// Devices is the number of advertised devices of each type, Profiles the number of advertised MIG devices of each profile.
	Devices, Profiles map[string]int
	Taints            []Taint
}

// Part is a device of a GPU that is allocated.
type Part struct {
	// Device is its name, Type its attribute "type", Profile the MIG profile.
	Device, Type, Profile string
	// Start and Size are its memory slices; Size is 0 for a device that takes the whole GPU.
	Start, Size int
	// Memory is the memory of the device, in bytes.
	Memory int64
	// Uses has an element for each share.
	Uses []Use
}

// Taint is a taint of devices of a GPU.
type Taint struct {
	Key, Value, Effect string
	// Since is the time at which the first of the devices got it; nil if it is unknown.
	Since *metav1.Time
	// Devices is the number of devices with the taint.
	Devices int
}
