package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

func TestInstall_OwnProgram_InstalledBesideTheOther(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	hook, err := n.install()
	require.NoError(t, err)
	own, err := hook.Own()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(filepath.Dir(hook.nvidia.own.Path), cdi.OwnHookName), own)
	content, err := os.ReadFile(own)
	require.NoError(t, err)
	assert.Equal(t, "own program", string(content))
	assert.Equal(t, cdi.CreateRuntimeHook(own, "exclusive"), hook.CreateRuntime("exclusive"))
	hook.Release()
}

// TestInstall_NoNVIDIAHook_OwnInstalled: prism-hook does not depend on the setting for NVIDIA's hook program.
func TestInstall_NoNVIDIAHook_OwnInstalled(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	n.cfg.Driver.CDIHook = config.NoCDIHook
	hook, err := n.install()
	require.NoError(t, err)
	assert.Empty(t, hook.DriverHook())
	own, err := hook.Own()
	require.NoError(t, err)
	assert.FileExists(t, own)
	hook.Release()
}

// TestInstall_OwnProgramOfOlderVersion_RemovedOnceUnused: containers of running claims start again with the program that their spec
// names.
func TestInstall_OwnProgramOfOlderVersion_RemovedOnceUnused(t *testing.T) {
	t.Parallel()
	const claim = "00000000-0000-0000-0000-000000000001"
	n := newHookNode(t)
	older := cdi.Hooks{Disk: disk.OS{}, Dir: n.cfg.ProgramsDir()}
	var before []cdi.Installed
	for _, program := range []cdi.Program{{Name: cdi.HookName, Image: n.image}, {Name: cdi.OwnHookName, Image: n.own}} {
		installed, err := older.Install("older", program)
		require.NoError(t, err)
		before = append(before, installed)
	}
	require.NoError(t, n.specs.Write(claim, &specs.Spec{
		Devices: []specs.Device{{Name: "d", ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{cdi.CreateRuntimeHook(before[1].Path)}}}},
	}))
	hook, err := n.install()
	require.NoError(t, err)
	before[0].Release()
	hook.Sweep(n.ctx)
	assert.FileExists(t, before[1].Path, "its process serves")
	before[1].Release()
	hook.Sweep(n.ctx)
	assert.FileExists(t, before[1].Path, "a claim's spec names it")
	require.NoError(t, n.specs.Remove(claim))
	hook.Sweep(n.ctx)
	assert.NoDirExists(t, filepath.Dir(before[1].Path))
	hook.Release()
}

// noexecHost mounts everything with noexec.
type noexecHost struct{ Host }

func (noexecHost) NoExec(string) (bool, error) { return true, nil }

// TestInstall_OwnProgramMissing_OnlyItsEditsRefused: the plugin serves, but writes no spec that names prism-hook.
func TestInstall_OwnProgramMissing_OnlyItsEditsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(n *hookNode)
		want   string
	}{
		"image has none": {
			func(n *hookNode) { n.own = "/does/not/exist" },
			"prism-hook is not installed: the image of the kubelet plugin does not contain /does/not/exist: not found",
		},
		"mounted noexec": {func(n *hookNode) { n.host = noexecHost{n.host} }, "set --state-dir (chart value stateDir)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.cfg.Driver.CDIHook = config.NoCDIHook
			c.change(n)
			p, err := n.install()
			require.NoError(t, err)
			_, err = p.Own()
			require.Error(t, err)
			exists := p.Exists(func(string) error { return nil })
			require.ErrorContains(t, exists(p.CreateRuntime("exclusive").Path), c.want)
			require.NoError(t, exists("/usr/bin/nvidia-cdi-hook"))
			assert.Contains(t, n.logs(), "MPS shares and memory limits are not supported without prism-hook")
			p.Release()
		})
	}
}
