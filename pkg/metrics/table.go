package metrics

import "slices"

// Kind is how a metric's value develops.
type Kind uint8

// The kinds.
const (
	Gauge Kind = iota
	Counter
)

// String is the type as both text formats write it.
func (k Kind) String() string {
	if k == Counter {
		return "counter"
	}
	return "gauge"
}

// Source is the part of NVML that a value comes from.
type Source string

// The sources.
const (
	SourceNVML Source = "NVML"
	// SourceGPM is GPU performance monitoring, which Hopper and later have.
	SourceGPM Source = "GPM"
)

// Architecture is a family of GPUs, older ones first.
type Architecture uint8

// The architectures that a field may depend on.
const (
	AnyArchitecture Architecture = iota
	Volta
	Turing
	Ampere
	Ada
	Hopper
	Blackwell
)

// String is NVIDIA's name of the architecture.
func (a Architecture) String() string {
	return [...]string{"any", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"}[a]
}

// The sets of fields, as in GPUMetricsConfig. Processes has no fields: it is the processes themselves.
const (
	SetBasic       = "Basic"
	SetUtilization = "Utilization"
	SetMemory      = "Memory"
	SetPower       = "Power"
	SetClocks      = "Clocks"
	SetPCIe        = "PCIe"
	SetNVLink      = "NVLink"
	SetECC         = "ECC"
	SetThrottle    = "Throttle"
	SetProcesses   = "Processes"
	SetPipelines   = "Pipelines"
)

// Sets are all of them.
var Sets = []string{
	SetBasic, SetUtilization, SetMemory, SetPower, SetClocks, SetPCIe, SetNVLink, SetECC, SetThrottle, SetProcesses, SetPipelines,
}

// BasicSets are those of a node that is configured for no other ones.
var BasicSets = []string{SetBasic}

// Row says how a field is named, where it comes from and where it is shown.
type Row struct {
	// GPU and MIG are the metric's names for a GPU and for a MIG device, empty where that level does not show the field.
	GPU, MIG string
	// Help says in one line what the value is; Unit is the base unit that ends the name (before _total), empty for a number.
	Help, Unit string
	Kind       Kind
	// Source is that of a GPU's value, SourceOnMIG that of a MIG device's, empty where it has none.
	Source, SourceOnMIG Source
	// Since and Until are the first and the last architecture that can have the field.
	Since, Until Architecture
	// Where says what else the GPU must have: "NVLink"; empty for nothing.
	Where string
	// Sets are those that the field belongs to.
	Sets []string
}

// On says that GPUs of an architecture can have the field.
func (r *Row) On(a Architecture) bool {
	return a >= r.Since && (r.Until == AnyArchitecture || a <= r.Until)
}

// SetFields are the fields of a set in the order of their numbers, none for Processes and for an unknown set.
func SetFields(set string) []Field {
	var fields []Field
	for f := range FieldCount {
		if slices.Contains(Table[f].Sets, set) {
			fields = append(fields, f)
		}
	}
	return fields
}
