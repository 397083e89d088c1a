package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notes is the text that helm prints after an installation.
func notes(t *testing.T, args ...string) string {
	t.Helper()
	all := append([]string{"install", release, "prism", "--namespace", namespace, "--dry-run=client"}, args...)
	printed, complaint, err := helm(t, all...)
	require.NoError(t, err, complaint)
	_, printed, found := strings.Cut(printed, "\nNOTES:\n")
	require.True(t, found, "no notes")
	return printed
}

// TestChartNotes_Values_DescribeTheInstallation: the notes describe the plugin's configuration, and every class in them exists.
func TestChartNotes_Values_DescribeTheInstallation(t *testing.T) {
	for set, want := range map[string]string{
		"config.map.a=x":                         "The layout of each GPU is configured in ConfigMap prism-system/prism-config.\nChanges are applied without restart",
		"config.map.a=x,config.default=a":        "The layout of each GPU is configured in ConfigMap prism-system/prism-config, key a.\nChanges are applied without restart",
		"config.name=nodes":                      "The layout of each GPU is configured in ConfigMap prism-system/nodes.\nChanges are applied without restart",
		"config.create=true":                     "The layout of each GPU is configured in ConfigMap prism-system/prism-config.\nChanges are applied without restart",
		"driverName=gpu.nvidia.com":              "Every GPU is advertised whole.",
		"deviceClasses.create=false":             "Every GPU is advertised whole.",
		"config.map.a=x,controller.enabled=true": "or by extended resource, with resources.limits of nvidia.com/gpu: Deployment prism-controller\nmaps that name to whole GPUs, unless a device plugin provides it on a node",
		"logVerbosity=2":                         "To turn it off, set\ncontroller.gpuExtendedResource=Never.",
		"controller.gpuExtendedResource=Always":  "maps that name to whole GPUs. To turn it off",
		"kubeletPlugin.nodeSelector.gpus=prism":  "The plugin runs on every node that matches gpus=prism,kubernetes.io/os=linux,\nand is idle on nodes without an NVIDIA GPU.",
		"kubeletPlugin.nodeSelector=null":        "The plugin runs on every node that matches anything,\nand is idle",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			printed := notes(t, "--set", set)
			assert.Contains(t, printed, want)
			for _, wrong := range []string{"rollout restart", "at start", "restarts"} {
				assert.NotContains(t, printed, wrong)
			}
			_, named, found := strings.Cut(printed, "kubectl get deviceclass ")
			named, _, _ = strings.Cut(named, "\n")
			if strings.HasPrefix(named, "-o") || !found {
				return
			}
			rendered := parse(t, render(t, "--set", set))
			classes := strings.Fields(named)
			for _, class := range classes {
				assert.Contains(t, rendered, "DeviceClass/"+class)
			}
			for key, object := range rendered {
				if object.GetKind() == "DeviceClass" && object.GetName() != "mig.nvidia.com" { // an alias of another class
					assert.Contains(t, classes, object.GetName(), key)
				}
			}
		})
	}
}

// TestChartNotes_NodeLabels_KeepPluginOff: the labels in NOTES keep the plugin off nodes without a GPU.
func TestChartNotes_NodeLabels_KeepPluginOff(t *testing.T) {
	printed := notes(t)
	for _, label := range []string{"nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"} {
		set := "kubeletPlugin.nodeSelector." + strings.ReplaceAll(label, ".", `\.`) + "=true"
		require.Contains(t, printed, "--set-string '"+set+"'")
		selector := dig(t, parse(t, render(t, "--set-string", set)).only(t, "DaemonSet"), "spec", "template", "spec", "nodeSelector")
		assert.Equal(t, map[string]any{"kubernetes.io/os": "linux", label: "true"}, selector)
	}
}

// TestChartNotes_ResourceNamesDisabled_NotNamed: NOTES do not name disabled resource names.
func TestChartNotes_ResourceNamesDisabled_NotNamed(t *testing.T) {
	assert.NotContains(t, notes(t, "--set", "controller.gpuExtendedResource=Never"), "nvidia.com/gpu:")
	assert.NotContains(t, notes(t, "--set", "controller.enabled=false"), "resources.limits of nvidia.com/gpu")
}
