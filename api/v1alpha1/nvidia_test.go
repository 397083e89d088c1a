package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const nvidiaHeaderText = "apiVersion: resource.nvidia.com/v1beta1\nkind: "

// TestDecodeNVIDIA_SupportedConfig_Translated compares the translation of manifests for NVIDIA's driver with the golden files.
func TestDecodeNVIDIA_SupportedConfig_Translated(t *testing.T) {
	written, err := filepath.Glob("testdata/nvidia/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, written)
	for _, file := range written {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, WrittenForNVIDIA(raw))
			read, err := DecodeNVIDIA(raw)
			require.NoError(t, err)
			require.NoError(t, read.Config.Validate())
			got, err := yaml.Marshal(read)
			require.NoError(t, err)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestDecodeNVIDIA_UnsupportedConfig_Refused(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"MPS out of range": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 101, " +
				"defaultPinnedDeviceMemoryLimit: 5, defaultPerDevicePinnedMemoryLimit: {\"0\": 1023Ki}}}",
			"GpuConfig: sharing.mpsConfig.defaultActiveThreadPercentage: must be between 0 and 100, got 101; " +
				"sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: must be at least 1Mi, got 5; " +
				"sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[0]: must be at least 1Mi, got 1023Ki",
		},
		"a negative percentage": {
			nvidiaHeaderText + "MigDeviceConfig\nsharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: -1}}",
			"MigDeviceConfig: sharing.mpsConfig.defaultActiveThreadPercentage: must be between 0 and 100, got -1",
		},
		"a limit for something else": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: MPS, mpsConfig: {defaultPerDevicePinnedMemoryLimit: {first: 1Gi, \"01\": 1Gi}}}",
			`GpuConfig: sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[01]: must be the UUID or the index of a GPU or MIG device, got "01"; ` +
				`sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[first]: must be the UUID or the index of a GPU or MIG device, got "first"`,
		},
		"another key of MPS": {
			nvidiaHeaderText + "MigDeviceConfig\nsharing: {strategy: MPS, mpsConfig: {memoryLimit: 1Gi}}",
			`MigDeviceConfig: sharing.mpsConfig: unknown field "memoryLimit"; valid fields: defaultActiveThreadPercentage, ` +
				`defaultPinnedDeviceMemoryLimit, defaultPerDevicePinnedMemoryLimit, multiUser`,
		},
		"settings of time-slicing": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: MPS, timeSlicingConfig: {interval: Long}}",
			"GpuConfig: sharing.timeSlicingConfig: has no effect with strategy MPS; remove it",
		},
		"no strategy": {
			nvidiaHeaderText + "GpuConfig\nsharing: {timeSlicingConfig: {interval: Long}}",
			"GpuConfig: sharing.strategy: required; supported values: TimeSlicing, MPS",
		},
		"another strategy": {
			nvidiaHeaderText + "MigDeviceConfig\nsharing: {strategy: Rounds}",
			`MigDeviceConfig: sharing.strategy: unsupported value "Rounds"; supported values: TimeSlicing, MPS`,
		},
		"settings of another strategy": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: TimeSlicing, mpsConfig: {multiUser: true}}",
			"GpuConfig: sharing.mpsConfig: has no effect with strategy TimeSlicing; remove it",
		},
		"another interval": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: 2ms}}",
			`GpuConfig: sharing.timeSlicingConfig.interval: unsupported value "2ms"; supported values: Default, Short, Medium, Long`,
		},
		"an interval for a MIG device": {
			nvidiaHeaderText + "MigDeviceConfig\nsharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}",
			`MigDeviceConfig: sharing: unknown field "timeSlicingConfig"; valid fields: strategy, mpsConfig`,
		},
		"our words": {
			nvidiaHeaderText + "GpuConfig\nsharing: {strategy: TimeSlicing, timeSlicing: {interval: Long}}",
			`GpuConfig: sharing: unknown field "timeSlicing"; valid fields: strategy, mpsConfig, timeSlicingConfig`,
		},
		"another kind": {
			nvidiaHeaderText + "VfioDeviceConfig",
			`kind: unsupported value "VfioDeviceConfig"; supported values: GpuConfig, MigDeviceConfig`,
		},
		"our kind": {
			"apiVersion: gpu.prism.dev/v1alpha1\nkind: GPUConfig",
			`apiVersion: unsupported value "gpu.prism.dev/v1alpha1"; supported values: resource.nvidia.com/v1beta1; ` +
				`kind: unsupported value "GPUConfig"; supported values: GpuConfig, MigDeviceConfig`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeNVIDIA([]byte(c.raw))
			assert.EqualError(t, err, c.want)
		})
	}
	assert.False(t, WrittenForNVIDIA([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: GPUConfig")))
	assert.False(t, WrittenForNVIDIA([]byte("[")))
}
