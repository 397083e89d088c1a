package hook

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInjected_AnyDirectory_ContainerStarts: the file is created if possible, and once.
func TestInjected_AnyDirectory_ContainerStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "1700000000000000000")
	for range 2 {
		require.NoError(t, Program{}.Run([]string{Injected, "--file", file}))
		info, err := os.Lstat(file)
		require.NoError(t, err)
		assert.Zero(t, info.Size())
	}
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	require.NoError(t, os.Symlink(target, link))
	for _, other := range []string{filepath.Join(dir, "gone", "file"), link, dir} {
		require.NoError(t, Program{}.Run([]string{Injected, "--file", other}))
	}
	assert.NoFileExists(t, target)
	require.EqualError(t, Program{}.Run([]string{Injected}), "injected: -file: required")
}
