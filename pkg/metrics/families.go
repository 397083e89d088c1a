package metrics

// Family is a metric of the page of Prism's own names.
type Family struct {
	// Name is as in a sample: a counter's ends with _total.
	Name, Help, Unit string
	Kind             Kind
	// Labels are those that its series have.
	Labels []string
}

// base is the name in OpenMetrics' headers.
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

// The families that are no row of Table.
var (
	familyUp   = Family{"prism_gpu_up", "1 where the GPU answers, 0 where it has not for three intervals.", "", Gauge, ofGPU}
	familyInfo = Family{"prism_gpu_info", "What the GPU is, as labels of the constant 1.", "", Gauge, []string{
		"gpu_uuid", "gpu", "device", "pci_bus_id", "name", "brand", "architecture", "serial", "vbios", "inforom",
		"driver_version", "cuda_version", "mig_mode",
	}}
	familyMIGInfo = Family{"prism_mig_info", "What the MIG device is, as labels of the constant 1.", "", Gauge, []string{
		"gpu_uuid", "mig_uuid", "gpu", "profile", "gpu_instance", "compute_instance",
	}}
	familyAllocation = Family{
		"prism_gpu_allocation_info", "Which container has the device by which claim, as labels of the constant 1.", "", Gauge,
		append(ofAnyone[:5:5], "claim", "request", "pool", "device", "share_id", "type", "claim_label_*", "pod_uid", "label_*"),
	}
	familyForeign = Family{
		"prism_gpu_foreign_processes", "Processes on the GPU that belong to no container that has it.", "", Gauge, ofGPU,
	}
	familyUnattributed = Family{
		"prism_gpu_unattributed_memory_bytes", "Memory in use that is no container's: foreign processes, MPS servers, what the driver needs.",
		"bytes", Gauge, ofGPU,
	}
	familyXIDs       = Family{"prism_gpu_xid_errors_total", "XID errors since the exporter began.", "", Counter, ofGPU}
	familyXIDsByCode = Family{
		"prism_gpu_xid_errors_by_code_total", "XID errors since the exporter began, by code; gpu_instance is empty for the GPU.",
		"", Counter, ofXID,
	}
	familyXIDLast = Family{"prism_gpu_xid_last_timestamp_seconds", "When the XID error was reported last.", "seconds", Gauge, ofXID}

	familyContainerUtilization = Family{
		"prism_container_gpu_utilization_ratio", "Share of the time in which work of the container ran on the device; none where the driver has no sample of its processes.",
		"ratio", Gauge, ofContainer,
	}
	familyContainerMemory = Family{
		"prism_container_gpu_memory_used_bytes", "Memory of the device that the container uses.", "bytes", Gauge, ofContainer,
	}
	familyContainerMemoryTotal = Family{
		"prism_container_gpu_memory_total_bytes", "Memory of the device, where the container has it for itself.", "bytes", Gauge, ofContainer,
	}
	familyProcessUtilization = Family{
		"prism_container_gpu_process_utilization_ratio", "Share of the time in which work of the container's processes ran, by command.",
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
		"prism_exporter_sample_timestamp_seconds", "When the round ended whose values are shown: their age is time() minus this.",
		"seconds", Gauge, ofGPU,
	}
	familyInterval   = Family{"prism_exporter_interval_seconds", "Time between the rounds on the GPU.", "seconds", Gauge, ofGPU}
	familyNVMLErrors = Family{
		"prism_exporter_nvml_errors_total", "NVML calls for the GPU that failed or took too long.", "", Counter, ofGPU,
	}
	familySamplesRead = Family{
		"prism_exporter_process_samples_read",
		"1 where the driver reported which processes used the GPU since the last round: a container without a utilization did not use it. Else 0, as in " +
			"MIG mode.", "", Gauge, ofGPU,
	}
	familySamplesDropped = Family{
		"prism_exporter_process_samples_dropped_total", "Utilization samples of processes that were dropped, as their time is in the future.",
		"", Counter, nil,
	}
	familyReopened = Family{
		"prism_exporter_nvml_sessions_reopened_total", "Times that NVML was closed and opened again to release a MIG device.", "", Counter, nil,
	}
	familyHidden = Family{
		"prism_exporter_processes_hidden", "1 where the exporter cannot see processes on a GPU, because it does not run with hostPID.",
		"", Gauge, nil,
	}
	familySourceUp = Family{
		"prism_exporter_source_up", "1 where the source could be read the last time, else 0.", "", Gauge, ofSource,
	}
	familySourceRead = Family{
		"prism_exporter_source_last_success_timestamp_seconds", "When the source was read last without an error.", "seconds", Gauge, ofSource,
	}
	familySourceErrors = Family{"prism_exporter_source_errors_total", "Failures to read the source.", "", Counter, ofSource}
	familyLimited      = Family{
		"prism_exporter_intervals_limited", "Claims that asked for a shorter interval than the exporter allows.", "", Gauge, nil,
	}
	familyUnidentified = Family{
		"prism_exporter_gpus_unidentified", "GPUs that have not responded since the exporter began. They have no series of their own: which ones they " +
			"are is not known.", "", Gauge, nil,
	}
	familyProblems = Family{
		"prism_exporter_csv_problem", "1 for each field of the CSV that is left out; the log says why.", "", Gauge, []string{"field"},
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

// Families are those of the page in its order.
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
		familyHidden, familySourceUp, familySourceRead, familySourceErrors, familyUnidentified, familyLimited, familyProblems, familyOTLPErrors)
}
