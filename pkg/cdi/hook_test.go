package cdi

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

func TestHooksStayWhileASpecNamesThem(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	image := filepath.Join(root, "image")
	require.NoError(t, os.WriteFile(image, []byte("program"), 0o600))
	hooks := Hooks{Disk: disk.OS{}, Dir: filepath.Join(root, "bin"), Image: image}
	old, err := hooks.Install("v1")
	require.NoError(t, err)
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

	_, err = hooks.Install("v2")
	require.NoError(t, err)
	removed, err := hooks.Sweep("v2", dir)
	require.NoError(t, err)
	assert.Empty(t, removed)
	assert.FileExists(t, old)

	require.NoError(t, dir.Remove(uid))
	removed, err = hooks.Sweep("v2", dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"v1"}, removed)
	assert.NoFileExists(t, old)
	assert.FileExists(t, filepath.Join(root, "bin", "v2", HookName))
}

func TestInstallWithoutAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hooks := Hooks{Disk: disk.OS{}, Dir: dir, Image: "/does/not/exist"}
	_, err := hooks.Install("v1")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoDirExists(t, filepath.Join(dir, "v1"))
}
