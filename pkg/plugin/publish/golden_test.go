package publish_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

var update = flag.Bool("update", false, "write the golden files again")

// The ResourceSlices of a node of each model, as the API server gets them.
func TestResources_WholeGPUs_Golden(t *testing.T) {
	t.Parallel()
	for board, count := range map[string]int{
		"t4": 4, "a30": 4, "a100-40": 8, "a100-80": 8, "l40s": 4, "h100-80": 8, "h200-141": 8, "b200-180": 8,
	} {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			got := render(t, slicesOf(node(t, board, count)))
			file := filepath.Join("testdata", board+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./pkg/plugin/publish -update writes it")
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is different; if that is wanted: go test ./pkg/plugin/publish -update\n%s", file, diff)
			}
		})
	}
}

// slicesOf returns the published ResourceSlices in their form in the API server.
func slicesOf(n *gpu.Node, pending ...gpu.PendingCleanup) []*resourceapi.ResourceSlice {
	pool := publish.Resources(publish.Options{DriverName: driverName, NodeName: nodeName, Taints: publish.CleanupTaints(pending)}, n).Pools[nodeName]
	var out []*resourceapi.ResourceSlice
	for i, slice := range pool.Slices {
		name := nodeName
		out = append(out, &resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: string(rune('0'+i)) + "-" + driverName + "-" + nodeName},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driverName, NodeName: &name, Devices: slice.Devices,
				Pool: resourceapi.ResourcePool{Name: nodeName, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return out
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
