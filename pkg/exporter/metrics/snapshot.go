package metrics

import (
	"cmp"
	"math"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Values are the values of one GPU or MIG device. A field without value is absent, never 0.
type Values struct {
	set    [FieldCount]bool
	values [FieldCount]float64
}

// Set sets a value. It ignores NaN, infinities, and ratios outside of 0 to 1, which drivers report if a unit has no counter. Only a fan can
// exceed 100 % in NVML.
func (v *Values) Set(field Field, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if Table[field].Unit == "ratio" && field != FieldFanSpeed && (value < 0 || value > 1) {
		return
	}
	v.set[field], v.values[field] = true, value
}

// Events are the fields that count errors. A GPU keeps them while it does not respond, because they may be the cause.
var Events = NewFieldSet(SetFields(gpu.MetricsECC)...)

// Only returns only the values of those fields.
func (v *Values) Only(fields FieldSet) (some Values) {
	for f := range FieldCount {
		if fields.Has(f) && v.set[f] {
			some.set[f], some.values[f] = true, v.values[f]
		}
	}
	return some
}

// Get returns a value, and whether it is present.
func (v *Values) Get(field Field) (float64, bool) { return v.values[field], v.set[field] }

// Snapshot is the result of the last round of each GPU. It is immutable after it is handed on.
type Snapshot struct {
	// Generation grows with each round of any GPU.
	Generation uint64
	// GPUs are sorted by index, with distinct UUIDs.
	GPUs []*GPU
}

// GPU is the result of the last round on one GPU.
type GPU struct {
	Identity Identity
	// At is the end of the round of these values, zero before the first. Interval is the time between rounds. Began is the begin of the round:
	// its values belong to no claim that was prepared later.
	At, Began time.Time
	Interval  time.Duration
	// Up is false if the GPU has not responded for three intervals; then MIG devices and processes are empty, and only the last values of
	// Events remain.
	Up bool
	// Released: the GPU is not asked whether it responds, because it is released for maintenance. Up is false then.
	Released bool
	Values   Values
	// MIGDevices are sorted by GPU instance and compute instance.
	MIGDevices []*MIGDevice
	// Processes are the processes on the GPU and its MIG devices, each once, by pid.
	Processes []Process
	// ProcessesHidden: processes on the GPU are outside of the exporter's pid namespace.
	ProcessesHidden bool
	// ProcessesSampled: the driver reported the utilization of processes since the last round. A process without a value did not use the GPU.
	ProcessesSampled bool
	// XIDs are counted since the exporter started, by code and GPU instance.
	XIDs []XID
	// ClockEvents are the events of the last Window.
	ClockEvents ClockEvents
}

// Identity does not change as long as a driver is loaded.
type Identity struct {
	UUID  gpu.UUID
	Index int
	// Device is the name of the device node, "nvidia0"; empty if unknown.
	Device   string
	PCIBusID string
	// Name is the product name: "NVIDIA H100 80GB HBM3".
	Name, Brand, Architecture, Serial, VBIOS, InfoROM string
	DriverVersion, CUDAVersion, NVMLVersion           string
	// InfoROMOEM, InfoROMECC and InfoROMPower are the versions of objects of the InfoROM; InfoROM is the version of its image.
	InfoROMOEM, InfoROMECC, InfoROMPower string
	// MIGMode is set if MIG mode is enabled.
	MIGMode bool
	// GPM is set if the GPU supports GPU performance monitoring: Hopper and later.
	GPM bool
}

// Or fills missing members from another identity of the same GPU, so that known members stay known.
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

// described reports whether any session described the GPU. Otherwise only its UUID and place are known.
func (g *GPU) described() bool { return g.Up || g.Identity.DriverVersion != "" }

// MIGDevice is the result of a round for one MIG device. Values are the values of its GPU instance.
type MIGDevice struct {
	UUID                         gpu.UUID
	Profile                      string
	GPUInstance, ComputeInstance int
	Values                       Values
}

// Process is a process on a GPU in one round.
type Process struct {
	// PID is the pid in the exporter's pid namespace; together with Start it identifies a process.
	PID uint32
	ProcessIdentity
	// MIG is the MIG device on which it runs, empty on a GPU without MIG mode.
	MIG gpu.UUID
	// MemoryBytes is its allocated memory; NaN if the driver does not report it.
	MemoryBytes float64
	// SM, Memory, Encoder and Decoder are its utilization, ratios; NaN if the driver does not report it.
	SM, Memory, Encoder, Decoder float64
	// ServesClients is set if the process itself uses the GPU and is a Server, which works for other processes.
	ServesClients bool
}

// ProcessList is the driver's report about the processes on a GPU in one round.
type ProcessList struct {
	// Processes are without identity, each once.
	Processes []Process
	// Hidden and Sampled are the fields ProcessesHidden and ProcessesSampled of a GPU.
	Hidden, Sampled bool
	// Dropped counts the utilization samples with a time in the future.
	Dropped int
}

// ProcessIdentity is the identity of a process from /proc.
type ProcessIdentity struct {
	// Start is its start time, in clock ticks since boot.
	Start uint64
	// Command is its name, at most 15 bytes of any text.
	Command string
	// ContainerID is the runtime's id of the outermost known container; empty for a process of the host or of an unknown container.
	ContainerID string
	// Unresolved is set if the process may be in a container about which the runtime has not answered yet.
	Unresolved bool
	// Server is set for a server of the node's MPS service, whose clients are processes of containers.
	Server bool
}

// XID counts one kind of error.
type XID struct {
	Code uint64
	// GPUInstance is the affected GPU instance, -1 for the GPU.
	GPUInstance int
	Count       uint64
	Last        time.Time
	// Times are the times of the last errors, at most XIDTimes, in order.
	Times []time.Time
}

// XIDTimes is the number of kept times for each kind of error.
const XIDTimes = 256
