package selection

// Areas are parts of the product. If a file of an area changes, all its tests run. Files without an area, such as packages that every claim
// needs, are tested by the core tests and by the rotation.
var Areas = []Area{
	{"claims", []string{
		"cmd/prism-hook", "cmd/prism-kubelet-plugin", "pkg/plugin/cdi", "pkg/plugin/cdihook", "pkg/checkpoint", "pkg/claim", "pkg/plugin/cri", "pkg/disk", "pkg/plugin/driver", "pkg/hook", "pkg/plugin/ownership",
		"pkg/plugin/*.go", "pkg/plugin/extension", "pkg/plugin/programs", "pkg/plugin/prepare", "pkg/plugin/reconcile", "deployments/helm/prism/templates/kubelet-plugin.yaml", "demo/specs/device-metadata",
		"demo/specs/user-namespace", "test/e2e/chart_test.go", "test/e2e/cpumanager_test.go", "test/e2e/crun_test.go", "test/e2e/damaged_test.go", "test/e2e/hooks_test.go", "test/e2e/injected_test.go",
		"test/e2e/leaked_effects_test.go", "test/e2e/outage_test.go", "test/e2e/parameters_test.go", "test/e2e/refusal_test.go", "test/e2e/rename_test.go", "test/e2e/rename_values_test.go",
		"test/e2e/restarts_test.go", "test/e2e/rollout_test.go", "test/e2e/whole_test.go",
	}},
	{"resourceslices", []string{
		"pkg/plugin/health", "pkg/plugin/inventory", "pkg/plugin/kube", "pkg/plugin/layout", "pkg/plugin/publish", "deployments/helm/prism/templates/admissionpolicy.yaml",
		"deployments/helm/prism/templates/rbac.yaml", "test/e2e/outage_test.go", "test/e2e/policy_test.go", "test/e2e/probe_test.go",
		"test/e2e/resourceslices_test.go",
	}},
	{"driver", []string{"pkg/hostfs", "pkg/plugin/inventory", "pkg/nvml", "pkg/plugin/nvsmi", "test/e2e/driver_test.go", "test/e2e/gpuless_test.go"}},
	{"health", []string{
		"cmd/prism-validate", "pkg/cli/cluster", "pkg/cli/gpus", "pkg/cli/validate", "pkg/maintenance", "pkg/nvml/health.go", "pkg/nvml/watch.go",
		"pkg/plugin/health", "pkg/plugin/health.go", "pkg/plugin/healthreports.go", "pkg/plugin/maintenance", "pkg/plugin/maintenance.go", "pkg/validation",
		"deployments/helm/prism/templates/validate.yaml", "test/simgpu/model/health.go", "test/simgpu/port/health.go", "test/e2e/health*_test.go",
		"test/e2e/maintenance_test.go", "test/e2e/validate_test.go",
	}},
	{"config", []string{
		"pkg/config", "pkg/plugin/layout", "pkg/nodeconfig", "deployments/helm/prism/templates/nodeconfig.yaml", "test/e2e/config_*_test.go",
	}},
	{"admission", []string{
		"cmd/prism-controller", "pkg/controller/admission", "deployments/helm/prism/templates/admission.yaml", "demo/specs/refused-config",
		"test/e2e/admission_test.go",
	}},
	{"extended-resources", []string{
		"cmd/prism-controller", "pkg/controller/classes", "deployments/helm/prism/templates/controller.yaml", "deployments/helm/prism/templates/deviceclasses.yaml",
		"demo/specs/*extended-resource", "test/e2e/extended_resources_test.go", "test/e2e/first_install_test.go",
	}},
	{"node-labels", []string{
		"cmd/prism-controller", "pkg/controller/labels", "deployments/helm/prism/templates/admissionpolicy.yaml",
		"deployments/helm/prism/templates/controller.yaml", "deployments/helm/prism/templates/nodelabels.yaml", "test/e2e/nodelabels_test.go",
	}},
	{"admin-access", []string{"demo/specs/admin-access", "demo/specs/monitor", "test/e2e/monitor_test.go"}},
	{"counters", []string{
		"pkg/profiler/counters", "deployments/helm/prism/templates/collector.yaml", "demo/specs/gpu-counters", "demo/specs/perfmon",
		"test/e2e/perfmon_test.go", "test/e2e/profiled_counters_test.go", "test/images",
	}},
	{"mig", []string{
		"pkg/plugin/mig", "deployments/helm/prism/templates/bycapacity.yaml", "demo/specs/mig-*", "test/e2e/mig_*_test.go", "test/e2e/mig_test.go",
	}},
	{"time-slicing", []string{"pkg/plugin/timeslice", "demo/specs/time*", "test/e2e/interval_test.go", "test/e2e/timeslice_test.go"}},
	{"mps", []string{
		"cmd/prism-mpsd", "pkg/plugin/mps", "pkg/mpsd", "deployments/helm/prism/templates/mps.yaml", "demo/specs/mps-*", "test/e2e/mps_*_test.go",
		"test/e2e/mps_test.go",
	}},
	{"memory-limit", []string{"pkg/plugin/memlimit", "test/e2e/memory_limit*_test.go"}},
	{"nvidia-driver", []string{"pkg/plugin/kube", "demo/specs/nvidia-driver", "test/e2e/nvidia_test.go"}},
	{"metrics", []string{
		"cmd/prism-exporter", "pkg/exporter", "pkg/plugin/claimmetrics", "pkg/podresources", "deployments/helm/prism/templates/exporter.yaml",
		"deployments/helm/prism/templates/metrics.yaml", "deployments/helm/prism/templates/monitoring.yaml", "demo/specs/metrics-*",
		"test/e2e/exporter*_test.go", "test/e2e/metricsclaim_test.go", "test/e2e/prometheus_test.go", "test/e2e/scrape_config_test.go",
	}},
	{"profiles", []string{
		"api/profiles", "cmd/kubectl-prism", "cmd/prism-tool", "pkg/cli", "pkg/controller/commands", "pkg/controller/reports", "pkg/plugin/profiler", "pkg/profiler", "deployments/helm/prism/templates/profiler*.yaml",
		"deployments/helm/prism/templates/reports.yaml", "demo/specs/profile-*", "test/e2e/profile*_test.go", "test/e2e/testdata",
	}},
	{"explain", []string{
		"pkg/cli/clusterview", "pkg/cli/explain", "pkg/cli/gpus", "pkg/cli/screen", "pkg/cli/ui", "pkg/cli/usage", "pkg/cli/view",
		"deployments/helm/prism/templates/viewers.yaml", "test/e2e/explain_test.go", "test/e2e/show_test.go",
	}},
	{"versions", []string{"hack/localcluster/parts/table.go", "test/e2e/version_test.go"}},
}
