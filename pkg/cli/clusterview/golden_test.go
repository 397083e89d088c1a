package clusterview_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

const driver = "gpu.prism.dev"

// published returns the ResourceSlices that the plugin publishes for a machine.
func published(t testing.TB, name string) (list []*resourceapi.ResourceSlice) {
	t.Helper()
	file, err := os.Open("../../plugin/publish/testdata/" + name + ".yaml")
	require.NoError(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		s := &resourceapi.ResourceSlice{}
		err := decoder.Decode(s)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		if s.Kind == "ResourceSlice" {
			list = append(list, s)
		}
	}
}

// machines are the names of all machines with published ResourceSlices.
func machines(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../plugin/publish/testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	require.Greater(t, len(names), 20)
	return names
}

func TestCluster_PublishedSlices_CompletePoolsAndGPUs(t *testing.T) {
	t.Parallel()
	for _, machine := range machines(t) {
		store := clusterview.NewStore()
		for _, slice := range published(t, machine) {
			store.PutSlice(slice)
		}
		c := store.Cluster()
		require.NotNil(t, c.FindNode("node-1"), machine)
		for _, p := range c.FindNode("node-1").Pools {
			assert.Equal(t, clusterview.PoolComplete, p.State, "%s: %s", machine, p.Problem)
		}
		for _, gpu := range c.GPUs(driver) {
			assert.NotEmpty(t, gpu.UUID, machine)
			assert.NotEmpty(t, gpu.Product, machine)
		}
	}
}
