package v1alpha1

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// maxDecodeBytes limits the memory that is allocated for one input. Slow work allocates much, and a busy machine does not change the
// amount.
const maxDecodeBytes = 512 << 20

// allocated returns the number of bytes that the process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzDecode checks that no input panics or takes much work, and that a valid input stays valid when it is written again and when defaults
// are filled in.
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
		before := allocated()
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
		require.Less(t, allocated()-before, uint64(maxDecodeBytes))
	})
}
