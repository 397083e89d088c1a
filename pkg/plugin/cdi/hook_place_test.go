package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
)

func noexec(string) (bool, error) { return true, nil }

func writeImage(t *testing.T, root string) string {
	t.Helper()
	image := filepath.Join(root, "image")
	require.NoError(t, os.WriteFile(image, []byte("program"), 0o600))
	return image
}

func TestInstall_MountedNoExec_Refused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	hooks := Hooks{Disk: disk.OS{}, Dir: filepath.Join(root, "programs"), NoExec: noexec}
	_, err := hooks.Install("v1", Program{HookName, writeImage(t, root)})
	require.ErrorIs(t, err, ErrNoExec)
	require.ErrorContains(t, err, filepath.Join(root, "programs", "v1"))
	require.ErrorContains(t, err, "noexec")
	assert.NoDirExists(t, filepath.Join(root, "programs", "v1"), "nothing could use it")
}

func TestInstall_MountedNoExecWithoutAProgram_NotRefusedForIt(t *testing.T) {
	t.Parallel()
	hooks := Hooks{Disk: disk.OS{}, Dir: t.TempDir(), NoExec: noexec}
	_, err := hooks.Install("v1", Program{HookName, "/does/not/exist"})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestInstall_AnyUser_ReachesTheProgram: in a user namespace, the hook runs as a user that owns nothing on the host.
func TestInstall_AnyUser_ReachesTheProgram(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	state := filepath.Join(root, "state")
	require.NoError(t, os.Mkdir(state, 0o700)) // the result of a strict umask
	hooks := Hooks{Disk: disk.OS{}, Dir: filepath.Join(state, "programs")}
	installed, err := hooks.Install("v1", Program{HookName, writeImage(t, root)})
	require.NoError(t, err)
	for path := installed.Path; path != root; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), path)
	}
}

// formerHooks returns a directory with one version's program, which a claim's spec names.
func formerHooks(t *testing.T) (hooks Hooks, dir *Dir, program Installed) {
	t.Helper()
	root := t.TempDir()
	hooks = Hooks{Disk: disk.OS{}, Dir: filepath.Join(root, "bin")}
	program, err := hooks.Install("v1", Program{HookName, writeImage(t, root)})
	require.NoError(t, err)
	claim := example()
	claim.Common = &specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "createContainer", Path: program.Path}}}
	dir, err = OpenDir(disk.OS{}, filepath.Join(root, "cdi"), claim.Kind)
	require.NoError(t, err)
	spec, err := Join(claim)
	require.NoError(t, err)
	require.NoError(t, dir.Write(uid, spec))
	return hooks, dir, program
}

func TestRetire_LastSpecGone_DirectoryRemoved(t *testing.T) {
	t.Parallel()
	hooks, dir, program := formerHooks(t)
	retire := func() ([]string, bool) {
		removed, gone, err := hooks.Retire(dir)
		require.NoError(t, err)
		return removed, gone
	}
	removed, gone := retire()
	assert.Empty(t, removed, "a process serves with it, and a spec names it")
	assert.False(t, gone)
	program.Release()
	removed, gone = retire()
	assert.Empty(t, removed, "a spec names it")
	assert.False(t, gone)
	assert.FileExists(t, program.Path)

	require.NoError(t, dir.Remove(uid))
	removed, gone = retire()
	assert.Equal(t, []string{"v1"}, removed)
	assert.True(t, gone)
	assert.NoDirExists(t, hooks.Dir)
	removed, gone = retire()
	assert.Empty(t, removed)
	assert.False(t, gone, "it was gone before")
}

// TestRetire_ServingProcess_KeepsItsProgram: the previous version serves until the kubelet has registered the next one, and may write its
// path into a spec at any time.
func TestRetire_ServingProcess_KeepsItsProgram(t *testing.T) {
	t.Parallel()
	hooks, dir, program := formerHooks(t)
	require.NoError(t, dir.Remove(uid))
	removed, gone, err := hooks.Retire(dir)
	require.NoError(t, err)
	assert.Empty(t, removed)
	assert.False(t, gone)
	assert.FileExists(t, program.Path)
	program.Release()
}

var errDied = errors.New("the process died here")

// dyingDisk allows some changes and then no more.
type dyingDisk struct {
	disk.OS
	left *int
}

func (d dyingDisk) change(effect func() error) error {
	if *d.left == 0 {
		return errDied
	}
	*d.left--
	return effect()
}

func (d dyingDisk) MakeDir(dir string, perm fs.FileMode) error {
	return d.change(func() error { return d.OS.MakeDir(dir, perm) })
}

func (d dyingDisk) Remove(path string) error {
	return d.change(func() error { return d.OS.Remove(path) })
}

func (d dyingDisk) Mirror(from, to string, perm fs.FileMode) error {
	return d.change(func() error { return d.OS.Mirror(from, to, perm) })
}

// TestRetire_DiesAnywhere_NextOneFinishes counts the changes of one removal and stops before each.
func TestRetire_DiesAnywhere_NextOneFinishes(t *testing.T) {
	t.Parallel()
	deaths := 0
	for alive := 0; ; alive++ {
		hooks, dir, program := formerHooks(t)
		hooks.Extra = []string{"library", "program"}
		program.Release()
		require.NoError(t, dir.Remove(uid))
		left := alive
		hooks.Disk = dyingDisk{left: &left}
		_, gone, err := hooks.Retire(dir)
		if err == nil {
			assert.True(t, gone)
			break
		}
		require.ErrorIs(t, err, errDied)
		deaths++
		hooks.Disk = disk.OS{}
		_, gone, err = hooks.Retire(dir)
		require.NoError(t, err)
		assert.True(t, gone)
		assert.NoDirExists(t, hooks.Dir)
	}
	assert.Equal(t, 10, deaths, "of each program the half-written one and itself, their folder, the directory")
}

// TestInstall_DiesAnywhere_NextOneInstalls counts the changes of one installation and stops before each.
func TestInstall_DiesAnywhere_NextOneInstalls(t *testing.T) {
	t.Parallel()
	for alive := 0; ; alive++ {
		root := t.TempDir()
		left := alive
		hooks := Hooks{Disk: dyingDisk{left: &left}, Dir: filepath.Join(root, "programs")}
		_, err := hooks.Install("v1", Program{HookName, writeImage(t, root)})
		if err == nil {
			assert.GreaterOrEqual(t, alive, 3)
			return
		}
		require.ErrorIs(t, err, errDied)
		hooks.Disk = disk.OS{}
		installed, err := hooks.Install("v1", Program{HookName, writeImage(t, root)})
		require.NoError(t, err)
		assert.FileExists(t, installed.Path)
	}
}
