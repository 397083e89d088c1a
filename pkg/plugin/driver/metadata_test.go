package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
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
		write("cdi", "gpu.prism.dev_metadata_uid-a_gpu.json"), write("cdi", "gpu.prism.dev_metadata_uid-a_gpu.json.tmp"), write("cdi", "gpu.prism.dev_metadata_uid-a_other.json"),
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

// syncing is a disk that records how files are written.
type syncing struct {
	disk.OS
	durable []bool
}

func (s *syncing) Write(path string, data []byte, perm os.FileMode, durable bool) error {
	s.durable = append(s.durable, durable)
	return s.OS.Write(path, data, perm, durable)
}

func (s *syncing) SyncDir(dir string) error {
	s.durable = append(s.durable, true)
	return s.OS.SyncDir(dir)
}

// TestMetadataFiles_Write_WholeAndNotSynced: device metadata adds no durable writes to a claim.
func TestMetadataFiles_Write_WholeAndNotSynced(t *testing.T) {
	t.Parallel()
	s := &syncing{}
	m := MetadataOf(&config.Plugin{})
	m.disk = s
	file := filepath.Join(t.TempDir(), "metadata.json")
	for _, content := range []string{"the first", "2nd"} {
		require.NoError(t, m.write(file, []byte(content), 0o644))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
	}
	assert.Equal(t, []bool{false, false}, s.durable)
}

// TestMetadataFiles_WriteSpec_MountsHaveTypes, like the specs of claims.
func TestMetadataFiles_WriteSpec_MountsHaveTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := MetadataOf(&config.Plugin{Paths: config.Paths{CDIRoot: dir}})
	file := filepath.Join(dir, "gpu.prism.dev_metadata_uid_gpu.json")
	const version, before, after = `{"cdiVersion":"`, `","kind":"gpu.prism.dev/metadata","devices":[{"name":"uid_gpu","containerEdits":{"mounts":[` +
		`{"hostPath":"/a","containerPath":"/b","options":["ro","bind"]`, `}]}}],"containerEdits":{}}`
	require.NoError(t, m.write(file, []byte(version+"0.3.0"+before+after), 0o644))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.JSONEq(t, version+"0.4.0"+before+`,"type":"bind"`+after, string(got), "runtimes read types from version 0.4.0 on")
	require.ErrorContains(t, m.write(file, []byte("{"), 0o644), "writing the CDI spec "+file+" for device metadata: reading a CDI spec: unexpected end of JSON input")
}
