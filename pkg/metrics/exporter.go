package metrics

import (
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Exporter is what the exporter says of itself.
type Exporter struct {
	// Version is the program's; Node is the name of the node, which the pages have as host name.
	Version, Node string
	// PodUID: series that name a pod for what it has have its UID too.
	PodUID bool
	// PodLabels: series that name a pod have these labels of it too.
	PodLabels []PodLabel
	// Sources are what values and names are read from, sorted by name.
	Sources []SourceState
	// Problems are the lines of the CSV that are left out.
	Problems []Problem
	// SessionsReopened counts how often NVML was closed and opened again so that a MIG device could be destroyed.
	SessionsReopened uint64
	// NVMLErrors counts calls that failed or that took too long, by GPU.
	NVMLErrors map[gpu.UUID]uint64
	// SamplesDropped counts utilization samples of processes with a time in the future.
	SamplesDropped uint64
	// GPUsUnidentified counts the GPUs that do not respond and of which it is not known which ones they are.
	GPUsUnidentified int
	// IntervalsLimited counts the claims that asked for a shorter interval than the exporter allows.
	IntervalsLimited int
	// OTLPErrors counts exports by OTLP that failed.
	OTLPErrors uint64
}

// SourceState is the state of a source: "records", "pod-resources", "cri", "nvml".
type SourceState struct {
	Name string
	OK   bool
	// At is when it was read last without an error; zero for never.
	At time.Time
	// Errors counts the failures.
	Errors uint64
}

// Problem is a line of a CSV that is left out.
type Problem struct {
	// Line counts from 1.
	Line int
	// Field is the name in the line, bounded and valid UTF-8.
	Field string
	// Reason is a sentence without full stop.
	Reason string
}

// String is the problem in one line.
func (p Problem) String() string { return "line " + itoa(p.Line) + ": " + p.Field + ": " + p.Reason }
