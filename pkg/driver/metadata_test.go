package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/config"
)

func TestMetadataFiles_Remove_OnlyThatClaims(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	m := MetadataOf(&config.Plugin{
		DriverName: "gpu.prism.dev", Paths: config.Paths{KubeletPlugins: filepath.Join(root, "plugins"), CDIRoot: filepath.Join(root, "cdi")},
	})
	write := func(path ...string) string {
		file := filepath.Join(append([]string{root}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		return file
	}
	ours := []string{
		write("plugins", "gpu.prism.dev", "dra-device-metadata", "team_a", "gpu", "metadata.json"),
		write("cdi", "gpu.prism.dev_metadata_uid-a_gpu.json"), write("cdi", "gpu.prism.dev_metadata_uid-a_other.json"),
	}
	others := []string{
		write("plugins", "gpu.prism.dev", "dra-device-metadata", "team_b", "gpu", "metadata.json"),
		write("cdi", "gpu.prism.dev_metadata_uid-b_gpu.json"), write("cdi", "k8s.gpu.prism.dev-claim_uid-a.json"),
	}
	claim := types.NamespacedName{Namespace: "team", Name: "a"}
	for range 2 {
		require.NoError(t, m.Remove(claim, "uid-a"))
		for _, file := range ours {
			assert.NoFileExists(t, file)
		}
		for _, file := range others {
			assert.FileExists(t, file)
		}
	}
}
