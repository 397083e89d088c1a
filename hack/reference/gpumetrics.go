package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/metrics"
)

// gpuMetricsPage has every metric of the exporter's own page.
func gpuMetricsPage(string) (string, error) {
	out := newText("GPU metrics", "the families of pkg/metrics")
	out.para("`prism-exporter` on each GPU node has these metrics at `/metrics` on port 9400: OpenMetrics, or the text format 0.0.4 for a scraper " +
		"that does not ask for OpenMetrics. Values are in base units, ratios are from 0 to 1. A value that the GPU does not have is no series, " +
		"never 0. Which fields a GPU has, and DCGM's names of them: [reference/metrics.md](reference/metrics.md).")
	out.para("GPUs, MIG devices and containers have families of their own, so a sum over one family counts everything once. Join them with " +
		"`prism_gpu_info` and `prism_mig_info`, and with containers and claims by `prism_gpu_allocation_info`, on `gpu_uuid` and `mig_uuid`. " +
		"The allocation comes first, since several containers may have a device:")
	out.para("```promql\n" + joinQuery + "\n```")
	section := ""
	var t table
	for _, f := range metrics.Families() {
		if title := sectionOf(f.Name); title != section {
			out.flush(section, t)
			section, t = title, table{head: []string{"name", "type", "unit", "labels", "meaning"}}
		}
		t.row(code(f.Name), f.Kind.String(), f.Unit, codes(f.Labels), f.Help)
	}
	out.flush(section, t)
	out.heading("How values get their container")
	out.para("- A device that one container alone has: the container has the device's values, without the memory of foreign processes.\n" +
		"- A share, or a claim of several containers: memory and utilization of the container's processes. NVML has no utilization of a process " +
		"on a MIG device, and a container is in no series as long as the runtime does not report its id. " +
		"The driver has samples only of processes that used the GPU since the last round: one without has no utilization, and " +
		"`prism_exporter_process_samples_read` says that this means that the process did not use the GPU. A container without a process has 0.\n" +
		"- A process that is in no container that has its device is foreign. Its memory, that of MPS servers and what the driver itself " +
		"needs is unattributed: containers and `prism_gpu_unattributed_memory_bytes` are together at most what is in use.\n" +
		"- Several MIG devices in one GPU instance: the values are the instance's, so the first of them has the series.\n" +
		"- With `perProcess` in its GPUMetricsConfig a claim has series by command: the 8 commands that use most, and `other`,\n" +
		"  so up to 22 series for each device of a container in place of 4. After 32 names a container's further ones are `other`.\n" +
		"- `label_*` are the labels of the pod that `exporter.podLabelKeys` of the chart names, as they were when the pod was started, in every " +
		"series that names a pod; empty where the pod has no such label or it is not known.\n" +
		"- A round that began before a claim was prepared, or less than a second after it, gives its containers nothing.\n" +
		"- A GPU that has not answered for three intervals has `prism_gpu_up` 0 and no values.")
	out.para("With `exposeInContainer` the container finds its own part of this page in `/run/prism/metrics/<claim UID>/gpu.prom`, in the text " +
		"format 0.0.4: devices that no other claim has with their values, shares with what its containers use of them.")
	return out.String(), nil
}

// joinQuery gives the utilization of MIG devices the names of the containers that have them.
const joinQuery = `prism_gpu_allocation_info
  * on (gpu_uuid, mig_uuid) group_left
  prism_mig_utilization_ratio`

// flush writes a section with a table.
func (t *text) flush(title string, rows table) {
	if len(rows.rows) > 0 {
		t.heading(title)
		t.table(rows)
	}
}

func sectionOf(name string) string {
	switch {
	case strings.HasPrefix(name, "prism_mig_"):
		return "MIG devices"
	case strings.HasPrefix(name, "prism_container_"), name == "prism_gpu_allocation_info":
		return "Allocations and containers"
	case strings.HasPrefix(name, "prism_exporter_"):
		return "The exporter"
	}
	return "GPUs"
}

// fieldsSection has which GPU has which field.
func fieldsSection(out *text) {
	out.heading("GPU fields by architecture")
	out.para("What `prism-exporter` can read, by source, set of GPUMetricsConfig and architecture; all metrics with their meaning: " +
		"[metrics.md](../metrics.md). A field is also absent where the board lacks the part in brackets.")
	shown := []metrics.Architecture{metrics.Volta, metrics.Turing, metrics.Ampere, metrics.Ada, metrics.Hopper, metrics.Blackwell}
	t := table{head: []string{"metric", "sets", "source"}}
	for _, a := range shown {
		t.head = append(t.head, a.String())
	}
	t.head = append(t.head, "MIG device")
	for f := range metrics.FieldCount {
		row := metrics.Table[f]
		if len(row.Sets) == 0 {
			continue // only counters choose it, by DCGM's name
		}
		name := code(row.GPU)
		if name == "" {
			name = unnamed(&row) + " (DCGM only)"
		}
		if row.Where != "" {
			name += " (" + row.Where + ")"
		}
		cells := []string{name, strings.Join(row.Sets, ", "), string(row.Source)}
		for _, a := range shown {
			cells = append(cells, yes(row.On(a)))
		}
		t.row(append(cells, onMIG(&row))...)
	}
	out.table(t)
	out.para("Before Hopper a GPU has no GPU performance monitoring (GPM). So the fields of GPM are absent there, and with them every " +
		"utilization of a MIG device of an A100 or A30: NVML has none while MIG mode is on. Prism never uses the performance monitor instead: " +
		"one program at a time can hold it, and profilers need it.")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func onMIG(row *metrics.Row) string {
	switch {
	case row.SourceOnMIG == metrics.SourceGPM:
		return "Hopper and later"
	case row.SourceOnMIG != "":
		return "yes"
	}
	return ""
}

// dcgmSection has DCGM's names.
func dcgmSection(out *text) {
	out.heading("DCGM fields")
	out.para("`/metrics/dcgm` has these in the text format 0.0.4, whatever the scraper asks for: in OpenMetrics a counter without `_total` " +
		"would lose its type. Without a CSV they are the lines of dcgm-exporter's default counters, also those that are commented there, " +
		"whatever sets the node has; a CSV can choose fewer, and the others. Fields of the page are sampled for it, and are on Prism's own " +
		"page too. Counters of recent events are of the last 5 minutes, at most since the session with the driver began, and for XID errors at " +
		"most 256 errors of a code. `instance`: a MIG device has it with `GPU_I_PROFILE` and `GPU_I_ID`, " +
		"and a GPU in MIG mode has not; `board`: the GPU has it once, without them.")
	t := table{head: []string{"field", "type", "level", "without CSV", "made of", "meaning"}}
	for _, f := range metrics.DCGMFields() {
		level := "board"
		if f.Instance {
			level = "instance"
		}
		t.row(code(f.Name), f.Kind.String(), level, yes(f.Default), codes(madeOf(f.Fields)), f.Help)
	}
	out.table(t)
	out.para("Labels that a CSV can choose with type `label`; the first one is there without a CSV: " + codes(metrics.DCGMLabels()) + ".")
	out.para("Lines of dcgm-exporter's default counters that Prism leaves out, and names in the log, at `/readyz` and in " +
		"`prism_exporter_csv_problem`:")
	t = table{head: []string{"field", "reason"}}
	unsupported := metrics.DCGMUnsupported()
	for _, name := range slices.Sorted(maps.Keys(unsupported)) {
		t.row(code(name), unsupported[name])
	}
	out.table(t)
}

// unnamed is a field that has no metric of Prism's own.
func unnamed(row *metrics.Row) string {
	help := strings.TrimSuffix(row.Help, ".")
	return strings.ToLower(help[:1]) + help[1:]
}

func madeOf(fields []metrics.Field) []string {
	if len(fields) == 0 {
		return []string{"prism_gpu_xid_errors_by_code_total"}
	}
	var names []string
	for _, f := range fields {
		name := metrics.Table[f].GPU
		if name == "" {
			name = unnamed(&metrics.Table[f])
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// recipeSection is how to get the fields that only DCGM has.
func recipeSection(out *text) {
	out.heading("dcgm-exporter for GPUs before Hopper")
	out.para("DCGM reads the fields of GPM on Volta to Ada Lovelace with the performance monitor. Run dcgm-exporter on those nodes for these " +
		"fields alone, with this CSV and without its own names of pods (`--kubernetes=false`), and give it another port than 9400 if it uses " +
		"the host's network:")
	var csv strings.Builder
	for _, f := range metrics.DCGMFields() {
		if f.Default && strings.HasPrefix(f.Name, "DCGM_FI_PROF_") {
			csv.WriteString(f.Name + ", " + f.Kind.String() + ", " + f.Help + "\n")
		}
	}
	out.para("```csv\n" + strings.TrimSpace(csv.String()) + "\n```")
	out.para("Its series have the GPU's UUID, and on a GPU in MIG mode the GPU instance. Join them with Prism's allocations:")
	out.para("```promql\n" + dcgmJoin + "\n```")
	out.para("```promql\n" + dcgmMIGJoin + "\n```")
	out.para("While dcgm-exporter reads these fields it holds the performance monitor, so Nsight tools cannot use it, and its session keeps MIG " +
		"devices in use: pause it before such work, and keep it off nodes whose MIG devices Prism creates.")
	simulatedSection(out)
	out.heading("What the exporter does not do")
	out.para("- Accounting by job: the claim's labels in `prism_gpu_allocation_info` name a job, and Prometheus adds up.\n" +
		"- Diagnostics: run DCGM's on a drained node.\n" +
		"- Power limits and clocks: nothing is set, they are only read.")
}

// simulatedSection says what no real GPU has confirmed. A line leaves the list when `make test-gpu` has seen it on one.
func simulatedSection(out *text) {
	out.heading("Seen with the simulated GPU only")
	out.para("NVIDIA's documentation leaves these open, or says them of some drivers only. Prism relies on what the simulated GPU does, and no real GPU has " +
		"confirmed it. `make test-gpu OUT=DIR` keeps what a real one answers.")
	t := table{head: []string{"question", "what Prism takes for granted", "if it is otherwise"}}
	t.row("The device handle of an event", "is that of `nvmlDeviceGetHandleByIndex`, also for an XID of a GPU instance",
		"the XID belongs to no GPU, and is not counted")
	t.row("GPM of a GPU instance", "`nvmlGpmMigSampleGet` takes the id of the GPU instance, not an index", "values are of another MIG device, or absent")
	t.row("GPM of a GPU in MIG mode", "either has values, or answers `NOT_SUPPORTED`, after which it is not asked again in that session",
		"`prism_gpu_*_active_ratio` of the GPU is absent; MIG devices have theirs")
	t.row("Scope of field values 138 and 139 (NVLink throughput)", "all ones is the sum over the links, in KiB; 0 is the first link",
		"the NVLink counters are of one link, or absent")
	t.row("Several utilization samples of a process", "are of consecutive times, and their mean is its utilization since the round before",
		"utilization of containers that share a GPU is too low or too high by the gaps between samples")
	t.row("Memory of a GPU in MIG mode", "in use includes that of its GPU instances", "the unattributed memory of the GPU is 0")
	t.row("A GPM sample of a GPU instance", "holds it: destroying it answers `IN_USE` until the sample is freed, or until `nvmlShutdown`",
		"samples are freed early for nothing")
	out.table(t)
}

const (
	dcgmJoin = `label_replace(prism_gpu_allocation_info{mig_uuid=""}, "UUID", "$1", "gpu_uuid", "(.*)")
  * on (UUID) group_left
  DCGM_FI_PROF_SM_ACTIVE{GPU_I_ID=""}`
	dcgmMIGJoin = `label_replace(label_replace(
    prism_gpu_allocation_info * on (gpu_uuid, mig_uuid) group_left (gpu_instance) prism_mig_info,
    "UUID", "$1", "gpu_uuid", "(.*)"), "GPU_I_ID", "$1", "gpu_instance", "(.*)")
  * on (UUID, GPU_I_ID) group_left
  DCGM_FI_PROF_SM_ACTIVE{GPU_I_ID!=""}`
)
