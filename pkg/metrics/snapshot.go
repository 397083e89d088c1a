package metrics

import (
	"cmp"
	"math"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Values are those of one GPU or MIG device. A field without value is absent, never 0.
type Values struct {
	set    [FieldCount]bool
	values [FieldCount]float64
}

// Set notes a value. NaN and infinities are no values, nor are ratios outside of 0 to 1: drivers report them where a unit has no counter.
// Only a fan can be faster than NVML's 100 %.
func (v *Values) Set(field Field, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if Table[field].Unit == "ratio" && field != FieldFanSpeed && (value < 0 || value > 1) {
		return
	}
	v.set[field], v.values[field] = true, value
}

// Events are the fields that count errors. A GPU keeps them while it does not respond: it may have failed for them.
var Events = NewFieldSet(SetFields(SetECC)...)

// Only are the values of those fields.
func (v *Values) Only(fields FieldSet) (some Values) {
	for f := range FieldCount {
		if fields.Has(f) && v.set[f] {
			some.set[f], some.values[f] = true, v.values[f]
		}
	}
	return some
}

// Get returns a value, and whether there is one.
func (v *Values) Get(field Field) (float64, bool) { return v.values[field], v.set[field] }

// Snapshot is what the last round of each GPU found. Nothing of it changes any more once it is handed on.
type Snapshot struct {
	// Generation grows with each round of any GPU.
	Generation uint64
	// GPUs are sorted by index. Each has a UUID of its own.
	GPUs []*GPU
}

// GPU is what the last round on one GPU found.
type GPU struct {
	Identity Identity
	// At is the end of the round whose values these are, zero before the first. Interval is the time between rounds. Began is when the round
	// was begun: what was found of a device is no claim's that was prepared later.
	At, Began time.Time
	Interval  time.Duration
	// Up is false where the GPU has not answered for three intervals; then there are neither MIG devices nor processes, and of the values the last
	// ones of Events.
	Up     bool
	Values Values
	// MIGDevices are sorted by GPU instance and compute instance.
	MIGDevices []*MIGDevice
	// Processes are those on the GPU and its MIG devices, each once, by pid.
	Processes []Process
	// ProcessesHidden: the driver has processes on the GPU that the exporter's pid namespace cannot see.
	ProcessesHidden bool
	// ProcessesSampled: the driver reported the utilization of processes since the last round. One that has no value did not use the GPU.
	ProcessesSampled bool
	// XIDs are counted since the exporter began, by code and GPU instance.
	XIDs []XID
	// ClockEvents are those of the last Window.
	ClockEvents ClockEvents
}

// Identity is what does not change as long as a driver is loaded.
type Identity struct {
	UUID  gpu.UUID
	Index int
	// Device is the name of the device node, "nvidia0"; empty where it is not known.
	Device   string
	PCIBusID string
	// Name is the product name: "NVIDIA H100 80GB HBM3".
	Name, Brand, Architecture, Serial, VBIOS, InfoROM string
	DriverVersion, CUDAVersion, NVMLVersion           string
	// InfoROMOEM, InfoROMECC and InfoROMPower are versions of objects of the InfoROM, whose image has the version InfoROM.
	InfoROMOEM, InfoROMECC, InfoROMPower string
	// MIGMode says that MIG mode is on.
	MIGMode bool
	// GPM says that the GPU has GPU performance monitoring: Hopper and later.
	GPM bool
}

// Or is the identity with what it lacks from another one of the same GPU: what is known of a GPU stays known.
func (i Identity) Or(other *Identity) Identity {
	for to, known := range map[*string]string{
		&i.Device: other.Device, &i.PCIBusID: other.PCIBusID, &i.Name: other.Name, &i.Brand: other.Brand, &i.Architecture: other.Architecture,
		&i.Serial: other.Serial, &i.VBIOS: other.VBIOS, &i.InfoROM: other.InfoROM, &i.InfoROMOEM: other.InfoROMOEM, &i.InfoROMECC: other.InfoROMECC,
		&i.InfoROMPower: other.InfoROMPower, &i.CUDAVersion: other.CUDAVersion, &i.NVMLVersion: other.NVMLVersion,
	} {
		*to = cmp.Or(*to, known)
	}
	return i
}

// described reports whether the GPU was described in some session. Of one that was not only the UUID and the place are known.
func (g *GPU) described() bool { return g.Up || g.Identity.DriverVersion != "" }

// MIGDevice is what a round found of one MIG device. Values are those of its GPU instance.
type MIGDevice struct {
	UUID                         gpu.UUID
	Profile                      string
	GPUInstance, ComputeInstance int
	Values                       Values
}

// Process is a process on a GPU in one round.
type Process struct {
	// PID is that of the exporter's pid namespace; with Start it names a process for good.
	PID uint32
	ProcessIdentity
	// MIG is the MIG device it is on, empty on a GPU without MIG mode.
	MIG gpu.UUID
	// MemoryBytes is what it has allocated; NaN where the driver does not say.
	MemoryBytes float64
	// SM, Memory, Encoder and Decoder are its utilization, ratios; NaN where the driver has none for it.
	SM, Memory, Encoder, Decoder float64
	// MPSServer says that it uses the GPU by itself and is a server of the node's MPS service, which works for others.
	MPSServer bool
}

// ProcessList is what the driver reports of the processes on a GPU in one round.
type ProcessList struct {
	// Processes are without identity, each once.
	Processes []Process
	// Hidden and Sampled are ProcessesHidden and ProcessesSampled of a GPU.
	Hidden, Sampled bool
	// Dropped counts the utilization samples with a time in the future.
	Dropped int
}

// ProcessIdentity is what /proc says of a process.
type ProcessIdentity struct {
	// Start is its start time, in clock ticks since boot.
	Start uint64
	// Command is its name, at most 15 bytes, and may be any text.
	Command string
	// ContainerID is the runtime's, of the outermost known container; empty for a process of the host or of an unknown one.
	ContainerID string
	// Unresolved says that the process may be in a container that the runtime has not answered for yet.
	Unresolved bool
	// ServesMPS says that it is a server of the node's MPS service.
	ServesMPS bool
}

// XID counts one kind of error.
type XID struct {
	Code uint64
	// GPUInstance is the GPU instance that it concerned, -1 for the GPU.
	GPUInstance int
	Count       uint64
	Last        time.Time
	// Times are those of the last ones, at most XIDTimes, in order.
	Times []time.Time
}

// XIDTimes is how many times of one kind of error are kept.
const XIDTimes = 256
