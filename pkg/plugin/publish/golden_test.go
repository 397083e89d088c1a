package publish_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

var update = flag.Bool("update", false, "write the golden files again")

// TestResources_EveryLayout_Golden: the ResourceSlices of nodes, as the API server gets them.
func TestResources_EveryLayout_Golden(t *testing.T) {
	t.Parallel()
	t4, l40s, h100 := node(t, "t4", 2), node(t, "l40s", 2), migNode(t, "h100-80", 1)
	static, staticLayout := sharedMIGDevice(t)
	all := mpsLayout(h100, mpsOf(4, 10), andWhole, func(o *gpu.Modes) {
		o.TimeSlice, o.MIG = &gpu.Replicas{Count: 2, ShareName: "gpu-shared"}, []string{"1g.10gb"}
	})
	golden := map[string][]*resourceapi.ResourceSlice{
		"timeslice-t4":      poolsOf(t4, timeSliced(t4, 10)),
		"timeslice-h100-80": poolsOf(h100, timeSliced(h100, 4, andWhole)),
		"timeslice-static":  poolsOf(static, staticLayout),
		"mps-h100-80":       poolsOf(h100, all),
		"mps-plugin-file":   poolsOf(l40s, pluginFile(t, l40s)),
		"mps-disjoint":      poolsOf(h100, all.Disjoint()),
		"mps-one-claim": poolsOf(l40s, mpsLayout(l40s, &gpu.MPSSharing{MPSSize: gpu.MPSSize{
			Replicas: 1, Threads: gpu.MPSThreads{Default: 1, Total: 1}, Memory: gpu.MPSMemory{Total: gib, Default: gib, Min: gib, Max: gib, Step: gib},
		}})),
	}
	for board, count := range map[string]int{
		"t4": 4, "a30": 4, "a100-40": 8, "a100-80": 8, "l40s": 4, "h100-80": 8, "h200-141": 8, "b200-180": 8,
	} {
		golden[board] = poolsOf(node(t, board, count), nil)
	}
	for _, board := range migBoards(t) {
		one := migNode(t, board, 1)
		golden["mig-"+board] = poolsOf(one, everything(one))
		// For a server without counters: the first GPU is advertised whole too, the second in all its profiles.
		two := migNode(t, board, 2)
		two.GPUs[0].MIG.Mode.Enabled = false
		layout := everything(two)
		layout[two.GPUs[1].UUID] = gpu.Modes{MIG: two.GPUs[1].MIG.ProfileNames()}
		golden["disjoint-"+board] = poolsOf(two, layout.Disjoint())
		assert.Empty(t, cmp.Diff(golden["disjoint-"+board], stored(golden["disjoint-"+board])), "such a server keeps all of it")
	}
	for name, slices := range golden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := render(t, slices)
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./pkg/plugin/publish -update writes it")
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is different; if that is wanted: go test ./pkg/plugin/publish -update\n%s", file, diff)
			}
			for _, d := range devicesIn(slices) {
				checkPolicies(t, &d)
			}
		})
	}
}

func render(t *testing.T, slices []*resourceapi.ResourceSlice) []byte {
	t.Helper()
	var docs [][]byte
	for _, slice := range slices {
		doc, err := yaml.Marshal(slice)
		require.NoError(t, err)
		docs = append(docs, doc)
	}
	return bytes.Join(docs, []byte("---\n"))
}
