package v1alpha1

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// decodeAny reads a Config or a NodeConfig, by the name of the file.
func decodeAny(t testing.TB, kind string, raw []byte) any {
	t.Helper()
	if kind == "nodeconfig" {
		config, err := DecodeNodeConfig(raw)
		require.NoError(t, err)
		return config
	}
	config, err := Decode(raw)
	require.NoError(t, err)
	return config
}

// TestDecode_Examples_RoundTrip decodes one example of each kind with every field set. Encoded again, it must be equal; otherwise a field
// was lost.
func TestDecode_Examples_RoundTrip(t *testing.T) {
	for _, kind := range []string{"gpuconfig", "profilerconfig", "gpumetricsconfig", "nodeconfig"} {
		t.Run(kind, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", kind+".yaml"))
			require.NoError(t, err)
			config := decodeAny(t, kind, raw)
			again, err := yaml.Marshal(config)
			require.NoError(t, err)
			var want, got any
			require.NoError(t, yaml.Unmarshal(raw, &want))
			require.NoError(t, yaml.Unmarshal(again, &got))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decoded and encoded (-file +again):\n%s", diff)
			}
			fromJSON, err := yaml.YAMLToJSON(raw)
			require.NoError(t, err)
			if diff := cmp.Diff(config, decodeAny(t, kind, fromJSON)); diff != "" {
				t.Errorf("JSON instead of YAML (-yaml +json):\n%s", diff)
			}
		})
	}
}

// TestDefault_UnsetFields_Filled compares nearly empty objects after Default with the golden files, and checks that Validate accepts them.
func TestDefault_UnsetFields_Filled(t *testing.T) {
	for name, raw := range map[string]string{
		"gpuconfig":             "kind: GPUConfig",
		"gpuconfig-mps":         "kind: GPUConfig\nsharing: {mps: {memoryLimit: 1Gi}}",
		"gpuconfig-sharing":     "kind: GPUConfig\nsharing: {}",
		"profilerconfig":        "kind: ProfilerConfig",
		"gpumetricsconfig":      "kind: GPUMetricsConfig",
		"gpumetricsconfig-nsys": "kind: GPUMetricsConfig\nsource: NsightSystems",
		"nodeconfig":            "kind: NodeConfig",
		"nodeconfig-gpus": "kind: NodeConfig\ngpus: [{modes: [timeslice, mps], " +
			"timeSlice: {replicas: 2}, mps: {replicas: 2}}, {select: {indices: [0]}}]",
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte("apiVersion: gpu.prism.dev/v1alpha1\n" + raw)
			kind := "other"
			if name == "nodeconfig" || name == "nodeconfig-gpus" {
				kind = "nodeconfig"
			}
			config := decodeAny(t, kind, raw)
			filled := config.(interface {
				Default()
				Validate() error
			})
			filled.Default()
			require.NoError(t, filled.Validate())
			got, err := yaml.Marshal(config)
			require.NoError(t, err)
			golden := filepath.Join("testdata", "defaults", name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))

			before := string(got)
			filled.Default()
			again, err := yaml.Marshal(config)
			require.NoError(t, err)
			require.Equal(t, before, string(again), "a second Default changed something")
		})
	}
}

// TestDecode_ExamplesOfPackageDoc_Valid decodes the examples of the package comment.
func TestDecode_ExamplesOfPackageDoc_Valid(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	examples := regexp.MustCompile(`(?m)(^//\t.*\n)+`).FindAllString(string(source), -1)
	kinds := map[string]bool{}
	for _, example := range examples {
		raw := strings.ReplaceAll(example, "//\t", "")
		found := regexp.MustCompile(`(?m)^kind: (.*)$`).FindStringSubmatch(raw)
		if found == nil {
			continue
		}
		kinds[found[1]] = true
		decodeAny(t, strings.ToLower(found[1]), []byte(raw))
	}
	require.Len(t, kinds, 4)
}
