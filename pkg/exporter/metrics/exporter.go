package metrics

import (
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Exporter is the state of the exporter itself.
type Exporter struct {
	// Version is the version of the program; Node is the name of the node, which the pages show as host name.
	Version, Node string
	// PodUID adds the UID to series that name a pod because of its usage.
	PodUID bool
	// PodLabels adds these labels to series that name a pod.
	PodLabels []PodLabel
	// Sources are the sources of values and names, sorted by name.
	Sources []SourceState
	// Problems are the ignored lines of the CSV.
	Problems []Problem
	// SessionsReopened counts how often NVML was closed and opened again so that a MIG device could be destroyed.
	SessionsReopened uint64
	// NVMLErrors counts calls that failed or that took too long, by GPU.
	NVMLErrors map[gpu.UUID]uint64
	// SamplesDropped counts utilization samples of processes with a time in the future.
	SamplesDropped uint64
	// GPUsUnidentified counts the GPUs that do not respond and whose UUIDs are unknown.
	GPUsUnidentified int
	// GPUsReleased: no GPU is sampled, because the GPUs are released for maintenance.
	GPUsReleased bool
	// IntervalsLimited counts the claims that requested a shorter interval than the exporter allows.
	IntervalsLimited int
	// OTLPErrors counts failed exports by OTLP.
	OTLPErrors uint64
}

// SourceState is the state of a source: "records", "pod-resources", "cri", "nvml".
type SourceState struct {
	Name string
	OK   bool
	// At is the time of the last successful read; zero for never.
	At time.Time
	// Errors counts the failures.
	Errors uint64
}

// Problem is an ignored line of a CSV.
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
