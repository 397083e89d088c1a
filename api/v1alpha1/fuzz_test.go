package v1alpha1

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// FuzzDecode checks that no input panics or takes long, and that what is
// accepted stays accepted when written again and when defaults are filled in.
func FuzzDecode(f *testing.F) {
	examples, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	foreign, err := filepath.Glob("testdata/nvidia/*.yaml")
	require.NoError(f, err)
	examples = append(examples, foreign...)
	for _, example := range examples {
		raw, err := os.ReadFile(example)
		require.NoError(f, err)
		f.Add(raw)
	}
	for _, raw := range []string{
		"", "{}", "[", gpuHeader, "{" + jsonHeader + `,"sharing":{"mps":{"memoryLimit":"1e-2147483647"}}}`,
		nvidiaHeaderText + "GpuConfig\nsharing: {strategy: MPS, mpsConfig: {defaultPerDevicePinnedMemoryLimit: {0: 999999999999999E, 007: 1, GPU-: 1Gi}}}",
		nvidiaHeaderText + "MigDeviceConfig\nsharing: {strategy: MPS, mpsConfig: {defaultPinnedDeviceMemoryLimit: 1048577, multiUser: null}}",
		profilerHeader + `match: {regex: '(a+)+$'}`, nodeHeader + "gpus: [{}]", "a: &a [*a]",
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		started := time.Now()
		config, err := Decode(raw)
		if err == nil {
			again, err := yaml.Marshal(config)
			require.NoError(t, err)
			_, err = Decode(again)
			require.NoError(t, err, "written again:\n%s", again)
			config.Default()
		}
		_, _ = DecodeNodeConfig(raw)
		if foreign, err := DecodeNVIDIA(raw); err == nil {
			require.True(t, WrittenForNVIDIA(raw))
			require.NoError(t, foreign.Config.Validate())
			for device, limit := range foreign.MemoryLimits {
				require.Regexp(t, deviceKey, device)
				require.True(t, limit.Value() >= mebibyte && limit.Value()%mebibyte == 0, limit.String())
			}
		}
		require.Less(t, time.Since(started), 5*time.Second)
	})
}
