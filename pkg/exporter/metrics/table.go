package metrics

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Kind is how a metric's value develops.
type Kind uint8

// The kinds.
const (
	Gauge Kind = iota
	Counter
)

// String is the type in both text formats.
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

// BasicSets are the sets of a node without configuration.
var BasicSets = []string{gpu.MetricsBasic}

// Row defines the name, the source and the level of a field.
type Row struct {
	// GPU and MIG are the names of the metric for a GPU and for a MIG device, empty if that level does not show the field.
	GPU, MIG string
	// Help describes the value in one line; Unit is the base unit at the end of the name (before _total), empty for a number.
	Help, Unit string
	Kind       Kind
	// Source is the source of a GPU's value, SourceOnMIG of a MIG device's value; empty if it has none.
	Source, SourceOnMIG Source
	// Since and Until are the first and the last architecture that can provide the field.
	Since, Until Architecture
	// Where is a further requirement for the GPU: "NVLink"; empty for none.
	Where string
	// Sets are the sets that contain the field.
	Sets []string
}

// On reports whether GPUs of an architecture can provide the field.
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
