package cdi

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

func TestHooks_NamedBySpec_Kept(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	image := filepath.Join(root, "image")
	require.NoError(t, os.WriteFile(image, []byte("program"), 0o600))
	hooks := Hooks{Disk: disk.OS{}, Dir: filepath.Join(root, "bin")}
	first, err := hooks.Install("v1", Program{HookName, image})
	require.NoError(t, err)
	old := first.Path
	assert.Equal(t, filepath.Join(root, "bin", "v1", HookName), old)
	info, err := os.Stat(old)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm())

	claim := example()
	claim.Common = &specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "createContainer", Path: old}}}
	dir, err := OpenDir(disk.OS{}, filepath.Join(root, "cdi"), claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))

	_, err = hooks.Install("v2", Program{HookName, image})
	require.NoError(t, err)
	removed, err := hooks.Sweep("v2", dir)
	require.NoError(t, err)
	assert.Empty(t, removed)
	assert.FileExists(t, old)

	require.NoError(t, dir.Remove(uid))
	removed, err = hooks.Sweep("v2", dir)
	require.NoError(t, err)
	assert.Empty(t, removed, "its process may yet name it in a spec")
	assert.FileExists(t, old)

	first.Release()
	removed, err = hooks.Sweep("v2", dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"v1"}, removed)
	assert.NoFileExists(t, old)
	assert.FileExists(t, filepath.Join(root, "bin", "v2", HookName))
}

// TestHooks_InstalledConcurrently_OneProgram: the pods of a rolling update install concurrently.
func TestHooks_InstalledConcurrently_OneProgram(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	image := filepath.Join(root, "image")
	require.NoError(t, os.WriteFile(image, bytes.Repeat([]byte("program"), 100_000), 0o600))
	hooks := Hooks{Disk: disk.OS{}, Dir: filepath.Join(root, "bin")}
	dir, err := OpenDir(disk.OS{}, filepath.Join(root, "cdi"), example().Kind)
	require.NoError(t, err)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			version := fmt.Sprintf("v%d", n%2)
			for range 20 {
				_, err := hooks.Sweep(version, dir)
				assert.NoError(t, err)
				installed, err := hooks.Install(version, Program{HookName, image})
				if !assert.NoError(t, err) {
					return
				}
				content, err := os.ReadFile(installed.Path)
				assert.NoError(t, err)
				assert.Len(t, content, 700_000)
				installed.Release()
			}
		})
	}
	all.Wait()
}

func TestInstall_NoProgram_NotFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hooks := Hooks{Disk: disk.OS{}, Dir: dir}
	_, err := hooks.Install("v1", Program{HookName, "/does/not/exist"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoDirExists(t, filepath.Join(dir, "v1"))
}
