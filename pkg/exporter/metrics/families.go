package metrics

// Family is a metric on the page with Prism's own names.
type Family struct {
	// Name is the name in a sample: the name of a counter ends with _total.
	Name, Help, Unit string
	Kind             Kind
	// Labels are those that its series have.
	Labels []string
}

// base is the name in the headers of OpenMetrics.
func (f *Family) base() string {
	if f.Kind == Counter {
		return f.Name[:len(f.Name)-len("_total")]
	}
	return f.Name
}

var (
	ofGPU       = []string{"gpu_uuid"}
	ofMIG       = []string{"gpu_uuid", "mig_uuid"}
	ofXID       = []string{"gpu_uuid", "xid", "gpu_instance"}
	ofAnyone    = []string{"namespace", "pod", "container", "gpu_uuid", "mig_uuid"}
	ofContainer = append(ofAnyone[:5:5], "label_*")
	ofProcess   = append(ofAnyone[:5:5], "command", "label_*")
	ofSource    = []string{"source"}
)

// The families outside of Table.
var (
	familyUp   = Family{"prism_gpu_up", "Whether the GPU responds (1) or has not for three intervals (0).", "", Gauge, ofGPU}
	familyInfo = Family{"prism_gpu_info", "Identity of the GPU, as labels of the constant 1.", "", Gauge, []string{
		"gpu_uuid", "gpu", "device", "pci_bus_id", "name", "brand", "architecture", "serial", "vbios", "inforom",
		"driver_version", "cuda_version", "mig_mode",
	}}
	familyMIGInfo = Family{"prism_mig_info", "Identity of the MIG device, as labels of the constant 1.", "", Gauge, []string{
		"gpu_uuid", "mig_uuid", "gpu", "profile", "gpu_instance", "compute_instance",
	}}
	familyAllocation = Family{
		"prism_gpu_allocation_info", "Container and claim that the device is allocated to, as labels of the constant 1.", "", Gauge,
		append(ofAnyone[:5:5], "claim", "request", "pool", "device", "share_id", "type", "claim_label_*", "pod_uid", "label_*"),
	}
	familyForeign = Family{
		"prism_gpu_foreign_processes", "Processes on the GPU that belong to no container of its claims.", "", Gauge, ofGPU,
	}
	familyUnattributed = Family{
		"prism_gpu_unattributed_memory_bytes", "Memory in use that is not attributed to a container: foreign processes, MPS servers, the driver.",
		"bytes", Gauge, ofGPU,
	}
	familyXIDs       = Family{"prism_gpu_xid_errors_total", "XID errors since the exporter started.", "", Counter, ofGPU}
	familyXIDsByCode = Family{
		"prism_gpu_xid_errors_by_code_total", "XID errors since the exporter started, by code; gpu_instance is empty for the GPU.",
		"", Counter, ofXID,
	}
	familyXIDLast = Family{"prism_gpu_xid_last_timestamp_seconds", "When the XID error was last reported.", "seconds", Gauge, ofXID}

	familyContainerUtilization = Family{
		"prism_container_gpu_utilization_ratio", "Ratio of time in which work of the container ran on the device; absent if the driver sampled none of its processes.",
		"ratio", Gauge, ofContainer,
	}
	familyContainerMemory = Family{
		"prism_container_gpu_memory_used_bytes", "Memory of the device that the container uses.", "bytes", Gauge, ofContainer,
	}
	familyContainerMemoryTotal = Family{
		"prism_container_gpu_memory_total_bytes", "Memory of the device, if no other container uses it.", "bytes", Gauge, ofContainer,
	}
	familyProcessUtilization = Family{
		"prism_container_gpu_process_utilization_ratio", "Ratio of time in which work of the container's processes ran, by command.",
		"ratio", Gauge, ofProcess,
	}
	familyProcessMemory = Family{
		"prism_container_gpu_process_memory_used_bytes", "Memory of the device that the container's processes use, by command.",
		"bytes", Gauge, ofProcess,
	}
)

// The families of the exporter itself.
var (
	familyBuild = Family{
		"prism_exporter_build_info", "Version of the exporter, as a label of the constant 1.", "", Gauge, []string{"version"},
	}
	familySampled = Family{
		"prism_exporter_sample_timestamp_seconds", "When the round of the values ended; the age of the values is time() minus this.",
		"seconds", Gauge, ofGPU,
	}
	familyInterval   = Family{"prism_exporter_interval_seconds", "Time between the rounds on the GPU.", "seconds", Gauge, ofGPU}
	familyNVMLErrors = Family{
		"prism_exporter_nvml_errors_total", "NVML calls for the GPU that failed or took too long.", "", Counter, ofGPU,
	}
	familySamplesRead = Family{
		"prism_exporter_process_samples_read",
		"Whether the driver reported which processes used the GPU since the last round (1), so that a container without utilization was idle, or not (0), as in " +
			"MIG mode.", "", Gauge, ofGPU,
	}
	familySamplesDropped = Family{
		"prism_exporter_process_samples_dropped_total", "Utilization samples of processes that were dropped because their time is in the future.",
		"", Counter, nil,
	}
	familyReopened = Family{
		"prism_exporter_nvml_sessions_reopened_total", "Times that NVML was closed and opened again to release a MIG device.", "", Counter, nil,
	}
	familyHidden = Family{
		"prism_exporter_processes_hidden", "Whether processes on a GPU are hidden from the exporter (1), because it runs without hostPID, or not (0).",
		"", Gauge, nil,
	}
	familySourceUp = Family{
		"prism_exporter_source_up", "Whether the last read of the source succeeded (1) or failed (0).", "", Gauge, ofSource,
	}
	familySourceRead = Family{
		"prism_exporter_source_last_success_timestamp_seconds", "When the source was last read without an error.", "seconds", Gauge, ofSource,
	}
	familySourceErrors = Family{"prism_exporter_source_errors_total", "Failures to read the source.", "", Counter, ofSource}
	familyLimited      = Family{
		"prism_exporter_intervals_limited", "Claims that requested a shorter interval than the exporter allows.", "", Gauge, nil,
	}
	familyUnidentified = Family{
		"prism_exporter_gpus_unidentified", "GPUs that have not responded since the exporter started. They appear in no other series, because their UUIDs " +
			"are unknown.", "", Gauge, nil,
	}
	familyReleased = Family{
		"prism_exporter_gpus_released", "Whether the GPUs of the node are released for maintenance (1), so that none has values, or not (0).", "", Gauge, nil,
	}
	familyProblems = Family{
		"prism_exporter_csv_problem", "1 for each ignored field of the CSV; the log contains the reason.", "", Gauge, []string{"field"},
	}
	familyOTLPErrors = Family{"prism_exporter_otlp_errors_total", "Exports by OTLP that failed.", "", Counter, nil}
)

// gpuFamilies and migFamilies are the families of Table's rows.
var gpuFamilies, migFamilies = func() (gpus, migs [FieldCount]Family) {
	for f := range FieldCount {
		row := &Table[f]
		gpus[f] = Family{row.GPU, row.Help, row.Unit, row.Kind, ofGPU}
		migs[f] = Family{row.MIG, row.Help, row.Unit, row.Kind, ofMIG}
	}
	return gpus, migs
}()

// Families are the families of the page, in its order.
func Families() []Family {
	all := []Family{familyUp, familyInfo}
	add := func(rows *[FieldCount]Family) {
		for f := range rows {
			if rows[f].Name != "" {
				all = append(all, rows[f])
			}
		}
	}
	add(&gpuFamilies)
	all = append(all, familyXIDs, familyXIDsByCode, familyXIDLast, familyForeign, familyUnattributed, familyMIGInfo)
	add(&migFamilies)
	return append(all, familyAllocation, familyContainerUtilization, familyContainerMemory, familyContainerMemoryTotal,
		familyProcessUtilization, familyProcessMemory, familyBuild, familySampled, familyInterval, familyNVMLErrors, familySamplesRead,
		familySamplesDropped, familyReopened,
		familyHidden, familySourceUp, familySourceRead, familySourceErrors, familyUnidentified, familyReleased, familyLimited, familyProblems, familyOTLPErrors)
}
