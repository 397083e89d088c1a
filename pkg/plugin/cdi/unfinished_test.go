package cdi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
)

// TestDir_OtherFiles_NotListed: other drivers and users keep their files in the same directory.
func TestDir_OtherFiles_NotListed(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	dir, err := OpenDir(disk.OS{}, path, Kind("gpu.prism.dev"))
	require.NoError(t, err)
	foreign := []string{
		"k8s.gpu.prism.dev-claim_.json", "k8s.gpu.prism.dev-claim_..json", "k8s.gpu.prism.dev-claim_a.yaml", "k8s.gpu.prism.dev-claim_a.json.bak",
		"k8s.gpu.prism.dev-other_a.json", "k8s.gpu.example.com-claim_a.json", "gpu.prism.dev_metadata_a_gpu.json", "nvidia.json", "nvidia.json.tmp",
	}
	for _, name := range append(foreign, "k8s.gpu.prism.dev-claim_a.json", "k8s.gpu.prism.dev-claim_a.json.tmp", "k8s.gpu.prism.dev-claim_b.json.tmp") {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	whole, err := dir.Claims()
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, whole)
	halves, err := dir.Unfinished()
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, halves)

	require.NoError(t, dir.Discard("a"))
	require.NoError(t, dir.Discard("a"))
	assert.FileExists(t, filepath.Join(path, "k8s.gpu.prism.dev-claim_a.json"))
	require.NoError(t, dir.Remove("a"))
	require.NoError(t, dir.Discard("b"))
	var left []string
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	assert.ElementsMatch(t, foreign, left)
}
