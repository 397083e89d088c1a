package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// gpuMetricsPage lists every metric of the exporter's own page.
func gpuMetricsPage(string) (string, error) {
	out := newText("GPU metrics", "the families of pkg/exporter/metrics")
	out.para("`prism-exporter` on each GPU node exposes these metrics at `/metrics` on port 9400: OpenMetrics, or the text format 0.0.4 for a scraper " +
		"that does not request OpenMetrics. Values are in base units, ratios are from 0 to 1. If the GPU does not report a value, its series is absent, " +
		"never 0. Fields by GPU architecture, and their names in DCGM: [reference/metrics.md](reference/metrics.md).")
	out.para("GPUs, MIG devices and containers use separate families, so a sum over one family counts everything once. Join them with " +
		"`prism_gpu_info` and `prism_mig_info`, and with containers and claims by `prism_gpu_allocation_info`, on `gpu_uuid` and `mig_uuid`. " +
		"The allocation comes first, because several containers may use a device:")
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
	out.heading("How values are attributed to containers")
	out.para("- A device that only one container uses: the container gets the device's values, without the memory of foreign processes.\n" +
		"- A share, or a claim of several containers: memory and utilization of the container's processes. NVML reports no utilization of a process " +
		"on a MIG device, and a container appears in no series until the runtime reports its id. " +
		"The driver samples only processes that used the GPU since the last round: a process without a sample has no utilization, and " +
		"`prism_exporter_process_samples_read` shows whether this means that the process did not use the GPU. A container without a process shows 0.\n" +
		"- A process outside of the containers that use its device is foreign. Its memory, the memory of MPS servers and memory that the driver itself " +
		"needs are unattributed: the sum of containers and `prism_gpu_unattributed_memory_bytes` is at most the memory in use.\n" +
		"- Several MIG devices in one GPU instance: the values describe the instance, so only the first device has series.\n" +
		"- With `perProcess` in its GPUMetricsConfig a claim gets series by command: the 8 commands with the highest usage, and `other`,\n" +
		"  so up to 22 series for each device of a container instead of 4. After 32 names, further commands of a container count as `other`.\n" +
		"- `label_*` are the labels of the pod that `exporter.podLabelKeys` of the chart names, with their values at the start of the pod, in every " +
		"series that names a pod; empty if the pod does not set the label or it is unknown.\n" +
		"- A round that began before a claim was prepared, or less than a second after it, gives its containers no values.\n" +
		"- If a GPU has not responded for three intervals, `prism_gpu_up` is 0 and its values are absent. While the GPUs of the node are released " +
		"for a reset, `prism_gpu_up` is absent too, and `prism_exporter_gpus_released` is 1.")
	out.para("With `exposeInContainer` the container reads its own part of this page in `/run/prism/metrics/<claim UID>/gpu.prom`, in the text " +
		"format 0.0.4: exclusive devices with their values, shares with the usage of its containers.")
	return out.String(), nil
}

// joinQuery adds the names of containers to the utilization of their MIG devices.
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

// fieldsSection lists the fields of GPUs by architecture.
func fieldsSection(out *text) {
	out.heading("GPU fields by architecture")
	out.para("Fields that `prism-exporter` can read, by source, set of GPUMetricsConfig and architecture; all metrics with their meaning: " +
		"[metrics.md](../metrics.md). A field is also absent if the board lacks the part in brackets.")
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
	out.para("GPUs before Hopper lack GPU performance monitoring (GPM). So their GPM fields are absent, and so is every " +
		"utilization of a MIG device of an A100 or A30: NVML reports none while MIG mode is enabled. Prism never uses the performance monitor instead: " +
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

// dcgmSection lists DCGM's names.
func dcgmSection(out *text) {
	out.heading("DCGM fields")
	out.para("`/metrics/dcgm` exposes these in the text format 0.0.4, even if the scraper requests OpenMetrics, in which a counter without `_total` " +
		"would lose its type. Without a CSV the page shows the lines of dcgm-exporter's default counters, including lines that are commented out there, " +
		"for any sets of the node; a CSV can select fewer lines, and the other fields. Fields of the page are sampled for it, and appear on Prism's own " +
		"page too. Counters of recent events cover the last 5 minutes, at most since the session with the driver began, and for XID errors at " +
		"most 256 errors of a code. `instance`: a MIG device shows it with `GPU_I_PROFILE` and `GPU_I_ID`, " +
		"and a GPU in MIG mode does not; `board`: the GPU shows it once, without them.")
	t := table{head: []string{"field", "type", "level", "without CSV", "made of", "meaning"}}
	for _, f := range metrics.DCGMFields() {
		level := "board"
		if f.Instance {
			level = "instance"
		}
		t.row(code(f.Name), f.Kind.String(), level, yes(f.Default), codes(madeOf(f.Fields)), f.Help)
	}
	out.table(t)
	out.para("Labels that a CSV can select with type `label`; the first one is shown without a CSV: " + codes(metrics.DCGMLabels()) + ".")
	out.para("Lines of dcgm-exporter's default counters that Prism ignores, and names in the log, at `/readyz` and in " +
		"`prism_exporter_csv_problem`:")
	t = table{head: []string{"field", "reason"}}
	unsupported := metrics.DCGMUnsupported()
	for _, name := range slices.Sorted(maps.Keys(unsupported)) {
		t.row(code(name), unsupported[name])
	}
	out.table(t)
}

// unnamed describes a field without a metric on Prism's own page.
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

// recipeSection explains how to get the fields that only DCGM provides.
func recipeSection(out *text) {
	out.heading("dcgm-exporter for GPUs before Hopper")
	out.para("On Volta to Ada Lovelace, DCGM reads the fields of GPM with the performance monitor. On those nodes run dcgm-exporter for these " +
		"fields only, with this CSV and without its own names of pods (`--kubernetes=false`), and use another port than 9400 if it uses " +
		"the host's network:")
	var csv strings.Builder
	for _, f := range metrics.DCGMFields() {
		if f.Default && strings.HasPrefix(f.Name, "DCGM_FI_PROF_") {
			csv.WriteString(f.Name + ", " + f.Kind.String() + ", " + f.Help + "\n")
		}
	}
	out.para("```csv\n" + strings.TrimSpace(csv.String()) + "\n```")
	out.para("Its series contain the GPU's UUID, and on a GPU in MIG mode the GPU instance. Join them with Prism's allocations:")
	out.para("```promql\n" + dcgmJoin + "\n```")
	out.para("```promql\n" + dcgmMIGJoin + "\n```")
	out.para("While dcgm-exporter reads these fields it holds the performance monitor, so Nsight tools cannot use it, and its session keeps MIG " +
		"devices in use: pause it before such work, and keep it off nodes whose MIG devices Prism creates.")
	simulatedSection(out)
	out.heading("What the exporter does not do")
	out.para("- Accounting by job: the claim's labels in `prism_gpu_allocation_info` name a job, and Prometheus calculates the sums.\n" +
		"- Diagnostics: run DCGM's on a drained node.\n" +
		"- Power limits and clocks: the exporter only reads them.")
}

// simulatedSection lists assumptions that no real GPU has confirmed. A line is removed after `make test-gpu` has confirmed it.
func simulatedSection(out *text) {
	out.heading("Verified only with the simulated GPU")
	out.para("NVIDIA's documentation leaves these questions open, or answers them for some drivers only. Prism relies on the behaviour of the simulated GPU, which no real GPU has " +
		"confirmed. `make test-gpu OUT=DIR` stores the answers of a real one.")
	t := table{head: []string{"question", "Prism's assumption", "otherwise"}}
	t.row("The device handle of an event", "equals the result of `nvmlDeviceGetHandleByIndex`, also for an XID of a GPU instance",
		"the XID belongs to no GPU, and is not counted")
	t.row("GPM of a GPU instance", "`nvmlGpmMigSampleGet` takes the id of the GPU instance, not an index", "values belong to another MIG device, or are absent")
	t.row("GPM of a GPU in MIG mode", "either returns values, or `NOT_SUPPORTED`, after which it is not queried again in that session",
		"`prism_gpu_*_active_ratio` of the GPU is absent, but not of MIG devices")
	t.row("Scope of field values 138 and 139 (NVLink throughput)", "scope of all ones is the sum over the links, in KiB; scope 0 is the first link",
		"the NVLink counters cover one link, or are absent")
	t.row("Several utilization samples of a process", "cover consecutive times, and their mean is its utilization since the previous round",
		"utilization of containers that share a GPU is too low or too high by the gaps between samples")
	t.row("Memory of a GPU in MIG mode", "memory in use includes its GPU instances", "the unattributed memory of the GPU is 0")
	t.row("A GPM sample of a GPU instance", "keeps it in use: destroying it returns `IN_USE` until the sample is freed, or until `nvmlShutdown`",
		"samples are freed early without need")
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
