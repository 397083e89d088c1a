package nodeconfig_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	lists "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestParse_DevicePluginFiles_Golden compares the translation of files of the device plugin with golden files: the warnings, the
// NodeConfig, and how the GPUs of a node are then advertised.
func TestParse_DevicePluginFiles_Golden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/deviceplugin/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			config, warnings, err := nodeconfig.Parse(raw, "file "+file)
			require.NoError(t, err)
			translated, err := yaml.Marshal(config)
			require.NoError(t, err)
			golden := strings.TrimSuffix(file, ".yaml")
			compare(t, golden+".nodeconfig", rendered(warnings)+string(translated))
			compare(t, golden+".plan", plan(config))

			again, err := v1alpha1.DecodeNodeConfig(translated)
			require.NoError(t, err, "the translation is a NodeConfig that can be written")
			for i := range config.GPUs {
				config.GPUs[i].Origins = nil
			}
			assert.Empty(t, cmp.Diff(config, again), "and read again")

			asJSON, err := yaml.YAMLToJSON(raw)
			require.NoError(t, err)
			config, _, err = nodeconfig.Parse(asJSON, "the same in JSON")
			require.NoError(t, err)
			for i := range config.GPUs {
				assert.NotEmpty(t, config.GPUs[i].Origins)
				config.GPUs[i].Origins = nil
			}
			assert.Empty(t, cmp.Diff(again, config))
		})
	}
}

func rendered(warnings []nodeconfig.Warning) string {
	var lines strings.Builder
	for _, warning := range warnings {
		fmt.Fprintf(&lines, "# warning: %s\n", warning)
	}
	return lines.String()
}

// plan describes the result of Resolve for a config on the node of gpus.
func plan(config *v1alpha1.NodeConfig) string {
	var lines strings.Builder
	layout, refused, err := nodeconfig.Resolve(config, &gpu.Node{GPUs: gpus()})
	for _, g := range gpus() {
		modes, ok := layout[g.UUID]
		fmt.Fprintf(&lines, "GPU %d, %s: ", g.Index, g.Product.Name)
		switch {
		case lists.Contains(refused, g.UUID):
			fmt.Fprintln(&lines, "refused")
			continue
		case !ok:
			fmt.Fprintln(&lines, "no entry, whole")
			continue
		}
		fmt.Fprintf(&lines, "whole %t, MIG %v", modes.Whole, modes.MIG)
		if shared := modes.TimeSlice; shared != nil {
			fmt.Fprintf(&lines, ", timeslice %d %q %s %s", shared.Count, shared.ShareName, shared.Resource, shared.Interval)
		}
		if mps := modes.MPS; mps != nil {
			fmt.Fprintf(&lines, ", mps %d %q %s, MiB %d, default %d, %d to %d by %d, threads %d of %d", mps.Replicas, mps.ShareName, mps.Resource,
				mps.Memory.Total>>20, mps.Memory.Default>>20, mps.Memory.Min>>20, mps.Memory.Max>>20, mps.Memory.Step>>20, mps.Threads.Default, mps.Threads.Total)
		}
		if len(modes.MIGReplicas) > 0 {
			fmt.Fprintf(&lines, ", replicas of MIG devices %v", modes.MIGReplicas)
		}
		if modes.OneShare {
			fmt.Fprintf(&lines, ", one share a request")
		}
		fmt.Fprintln(&lines)
	}
	problems, _ := errors.AsType[*v1alpha1.Problems](err)
	if problems != nil {
		fmt.Fprintf(&lines, "%s:\n", problems.Kind)
		for _, problem := range problems.List {
			fmt.Fprintf(&lines, "- %v\n", problem)
		}
	}
	if absent := nodeconfig.Absent(config, &gpu.Node{GPUs: gpus()}); absent != "" {
		fmt.Fprintf(&lines, "mentioned: %s\n", absent)
	}
	return lines.String()
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, golden)
}

func TestParse_Dialects_DecidedByVersion(t *testing.T) {
	t.Parallel()
	const ours, theirs = "NodeConfig: ", "device plugin configuration: "
	for name, c := range map[string]struct{ raw, want string }{
		"version":                {"version: v1\nx: 1", theirs + `unknown field "x"; valid fields: version, flags, resources, sharing, imex`},
		"empty version":          {"version: ''\nx: 1", theirs + `unknown field "x"`},
		"sharing alone":          {"sharing: {}\nx: 1", theirs + `unknown field "x"`},
		"JSON":                   {`{"version": "v1", "x": 1}`, theirs + `unknown field "x"`},
		"version and apiVersion": {header + "version: v1", ours + `unknown field "version"`},
		"version and kind":       {"version: v1\nkind: NodeConfig", "apiVersion: required and must be a string"},
		"without a header":       {"gpus: []\nflags: {}", "apiVersion: required and must be a string"},
		"neither":                {"x: 1", "apiVersion: required and must be a string"},
		"unknown version":        {"version: v2", theirs + "version: unknown version: v2; allowed: v1; or apiVersion gpu.prism.dev/v1alpha1 and kind NodeConfig without version"},
		"number":                 {"version: 1", theirs + "version: must be a string, got number 1"},
		"twice":                  {"version: v1\nversion: v1", "line 2: duplicate key \"version\""},
		"twice in JSON":          {`{"version": "v1", "version": "v1"}`, theirs + `duplicate field "version"`},
		"long":                   {"version: v1\n#" + strings.Repeat("x", v1alpha1.MaxNodeConfigBytes), "the configuration must be at most 262144 bytes, got 262157"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, warnings, err := nodeconfig.Parse([]byte(c.raw), "file node.yaml")
			assert.Nil(t, config)
			assert.Empty(t, warnings)
			require.ErrorContains(t, err, "reading the node configuration in file node.yaml: ")
			require.ErrorContains(t, err, c.want)
			assert.ErrorAs(t, err, new(*v1alpha1.Problems))
		})
	}
}

// A ConfigMap may hold files of both dialects.
func TestPick_DevicePluginFile_Translated(t *testing.T) {
	t.Parallel()
	config, warnings, err := nodeconfig.Pick(map[string]string{"ours": partitioned, "theirs": "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"},
		nodeconfig.Choice{Label: "theirs"})
	require.NoError(t, err)
	require.Len(t, warnings, 2)
	assert.Equal(t, "version: is missing; the file is read as one of the device plugin, version v1: write that, or apiVersion and kind of a NodeConfig",
		warnings[0].String())
	assert.Equal(t, []v1alpha1.Mode{v1alpha1.ModeMPS}, config.GPUs[0].Modes)
}

// Sharing that is larger than the GPU is reported with the GPU that is too small.
func TestResolve_SharesLargerThanGPU_Refused(t *testing.T) {
	t.Parallel()
	node := gpus()[:2]
	node[0].Capacity.MemoryBytes = 80 << 30
	node[1].Capacity.MemoryBytes = 80<<30 - 1
	parse := func(memoryGB int) *v1alpha1.NodeConfig {
		config, _, err := nodeconfig.Parse(fmt.Appendf(nil, "version: v1\nsharing: {mps: {resources: [{name: gpu, rename: part, "+
			"memoryGB: %d, replicas: 8, devices: all}]}}", memoryGB), "")
		require.NoError(t, err)
		return config
	}
	layout, refused, err := nodeconfig.Resolve(parse(10), &gpu.Node{GPUs: node})
	require.EqualError(t, err, "device plugin configuration: sharing.mps.resources[0]: 8 shares of 10Gi are more than the 81919 MiB of NVIDIA H100 80GB HBM3; "+
		"make them fewer or smaller")
	assert.Equal(t, []gpu.UUID{h1}, refused)
	assert.NotContains(t, layout, h1)
	assert.Equal(t, int64(80<<30), layout[h0].MPS.Memory.Total, "all of the GPU, as the shares need it")
	layout, _, err = nodeconfig.Resolve(parse(9), &gpu.Node{GPUs: node})
	require.NoError(t, err)
	assert.Equal(t, int64(80<<30-512<<20), layout[h0].MPS.Memory.Total)
}
