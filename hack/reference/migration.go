package main

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// foreignValue is a value of the chart of NVIDIA's device plugin.
type foreignValue struct {
	Name string `json:"name"`
	// Accepted: this chart accepts it too. Others fail with the replacement.
	Accepted    bool   `json:"accepted"`
	Replacement string `json:"replacement"`
}

// foreignValues reads the list that the chart itself uses.
func foreignValues(root string) ([]foreignValue, error) {
	content, err := os.ReadFile(filepath.Join(root, chart, "migration.yaml"))
	if err != nil {
		return nil, err
	}
	var list struct {
		Values []foreignValue `json:"values"`
	}
	err = yaml.UnmarshalStrict(content, &list)
	return list.Values, err
}

// foreignFlag is a flag of NVIDIA's device plugin.
type foreignFlag struct{ flag, env, here string }

var foreignFlags = []foreignFlag{
	{"--mig-strategy", "MIG_STRATEGY", "chart value `migStrategy`, or `flags.migStrategy` of a node configuration"},
	{"--fail-on-init-error", "FAIL_ON_INIT_ERROR", "`--fail-on-init-error`, `PRISM_FAIL_ON_INIT_ERROR`; default false"},
	{"--driver-root, --nvidia-driver-root", "NVIDIA_DRIVER_ROOT", "`--driver-root`, `PRISM_DRIVER_ROOT`; detected by default"},
	{"--dev-root, --nvidia-dev-root", "NVIDIA_DEV_ROOT", "none: device nodes are searched below the driver root, then below `/`"},
	{"--driver-root-ctr-path, --container-driver-root", "DRIVER_ROOT_CTR_PATH, CONTAINER_DRIVER_ROOT", "none: the chart mounts the root filesystem of the host, `--host-root`"},
	{"--pass-device-specs", "PASS_DEVICE_SPECS", "none: device nodes are passed through CDI"},
	{"--device-list-strategy", "DEVICE_LIST_STRATEGY", "none: always as `cdi-cri`"},
	{"--device-id-strategy", "DEVICE_ID_STRATEGY", "none: UUID and index are attributes"},
	{"--device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY", "none: always NVML"},
	{"--gds-enabled", "GDS_ENABLED", "`flags.gdsEnabled` of a node configuration"},
	{"--mofed-enabled", "MOFED_ENABLED", "`flags.mofedEnabled` of a node configuration"},
	{"--gdrcopy-enabled", "GDRCOPY_ENABLED", "`flags.gdrcopyEnabled` of a node configuration"},
	{"--config-file", "CONFIG_FILE", "`--node-config`, which reads the same file; chart value `config`"},
	{"--cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX", "none: the kubelet passes CDI devices, without annotations"},
	{"--nvidia-cdi-hook-path, --nvidia-ctk-path", "NVIDIA_CDI_HOOK_PATH, NVIDIA_CTK_PATH", "`--cdi-hook`, `PRISM_CDI_HOOK`"},
	{"--cdi-feature-flags", "CDI_FEATURE_FLAGS", "none: a CDI spec is written for each claim"},
	{"--mps-root", "MPS_ROOT", "none: MPS directories are in `/run`, below the name of the driver"},
	{"--kubelet-socket", "KUBELET_SOCKET", "`--kubelet-plugins-dir`, `--kubelet-registrar-dir`; chart value `kubeletRoot`"},
	{"--imex-channel-ids", "IMEX_CHANNEL_IDS", "none: IMEX channels are allocated by NVIDIA's DRA driver for ComputeDomains"},
	{"--imex-required", "IMEX_REQUIRED", "none, like `--imex-channel-ids`"},
	{"--restart-on-device-unhealthy", "RESTART_ON_DEVICE_UNHEALTHY", "none: the plugin does not restart because of a device"},
	{"", "DP_DISABLE_HEALTHCHECKS, DP_ENABLE_HEALTHCHECKS", "none: XIDs are not health checks in this version"},
}

// migrationPage is for readers who know NVIDIA's device plugin.
func migrationPage(root string) (string, error) {
	values, err := foreignValues(root)
	if err != nil {
		return "", err
	}
	out := newText("From NVIDIA's device plugin or DRA driver", "migration.yaml of the chart and hack/reference")
	out.para("Every value of the chart of NVIDIA's device plugin and every flag of the plugin, with its replacement. `helm` refuses values that are not " +
		"accepted and names the replacement. The values of the DRA driver's chart are [below](#from-nvidias-dra-driver). Keys of the configuration file: [node-config.md](../node-config.md). Pods with `resources.limits` run unchanged.")
	out.heading("Chart values")
	t := table{head: []string{"value", "accepted", "here"}}
	for _, v := range values {
		accepted := "no"
		if v.Accepted {
			accepted = "yes"
		}
		t.row(code(v.Name), accepted, v.Replacement)
	}
	out.table(t)
	out.heading("Flags")
	t = table{head: []string{"flag", "environment variable", "here"}}
	for _, f := range foreignFlags {
		t.row(codes(splitList(f.flag)), codes(splitList(f.env)), f.here)
	}
	out.table(t)
	draSection(out)
	return out.String(), nil
}
