package programs

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// testVersion is the program's version in tests.
const testVersion = "test"

// hookNode is a node whose host lacks the hook program.
type hookNode struct {
	cfg   *config.Plugin
	host  Host
	specs *cdi.Dir
	image string
	own   string
	mu    sync.Mutex
	// hooks are the hooks that the host's programs list, asked the programs that were asked, which wait for hang unless it is nil.
	hooks, asked []string
	hang         chan struct{}
	logs         func() string
	ctx          context.Context
}

func newHookNode(t *testing.T) *hookNode {
	t.Helper()
	root := t.TempDir()
	n := &hookNode{
		cfg: &config.Plugin{DriverName: "gpu.example.com", Paths: config.Paths{
			KubeletPlugins: filepath.Join(root, "plugins"), StateDir: filepath.Join(root, "state"),
		}},
		host:  pcie.New(filepath.Join(root, "host")),
		image: filepath.Join(root, "image"), own: filepath.Join(root, "own"),
	}
	require.NoError(t, os.WriteFile(n.image, []byte("program"), 0o600))
	require.NoError(t, os.WriteFile(n.own, []byte("own program"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(n.onHost(n.cfg.ProgramsDir()), testVersion), 0o755))
	var err error
	n.specs, err = cdi.OpenDir(disk.OS{}, filepath.Join(root, "cdi"), cdi.Kind(n.cfg.DriverName))
	require.NoError(t, err)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	n.logs = logger.GetSink().(ktesting.Underlier).GetBuffer().String
	n.ctx = klog.NewContext(t.Context(), logger)
	return n
}

// onHost returns the plugin's path of a path of the host.
func (n *hookNode) onHost(path string) string {
	return filepath.Join(filepath.Dir(n.own), "host", path)
}

func (n *hookNode) options() Options {
	return Options{
		Config: n.cfg, Version: testVersion, Disk: disk.OS{}, Host: n.host, Images: Images{NVIDIA: n.image, Own: n.own},
		Abilities: n.abilities, Specs: n.specs,
	}
}

func (n *hookNode) install() (*Set, error) { return Install(n.ctx, n.options()) }

// before installs the programs of the version before, and writes the spec of a claim that names them.
func (n *hookNode) before(t *testing.T, claim string) cdi.Installed {
	t.Helper()
	installed, err := cdi.Hooks{Disk: disk.OS{}, Dir: n.cfg.FormerProgramsDir()}.Install("before", cdi.Program{Name: cdi.HookName, Image: n.image})
	require.NoError(t, err)
	require.NoError(t, n.specs.Write(claim, &specs.Spec{
		ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{{Path: installed.Path}}},
	}))
	return installed
}

// TestInstall_Upgrade_FormerDirectoryStaysWhileNeeded: containers of running claims start again with the hook that their spec names.
func TestInstall_Upgrade_FormerDirectoryStaysWhileNeeded(t *testing.T) {
	t.Parallel()
	const claim = "00000000-0000-0000-0000-000000000001"
	n := newHookNode(t)
	serving := n.before(t, claim)
	hook, err := n.install()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(n.cfg.Paths.StateDir, "programs", testVersion, cdi.HookName), hook.nvidia.own.Path)
	assert.FileExists(t, serving.Path, "the version before serves")
	serving.Release()
	hook.Sweep(n.ctx)
	assert.FileExists(t, serving.Path, "a claim's spec names it")

	require.NoError(t, n.specs.Remove(claim))
	hook.Sweep(n.ctx)
	assert.NoDirExists(t, n.cfg.FormerProgramsDir())
	assert.DirExists(t, n.cfg.PluginDir(), "records and locks are in it")
	assert.FileExists(t, hook.nvidia.own.Path)
	hook.Release()
}

func TestInstall_OlderVersion_RemovedOnceUnused(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	older, err := cdi.Hooks{Disk: disk.OS{}, Dir: n.cfg.ProgramsDir()}.Install("older", cdi.Program{Name: cdi.HookName, Image: n.image})
	require.NoError(t, err)
	hook, err := n.install()
	require.NoError(t, err)
	assert.FileExists(t, older.Path, "its process serves")
	older.Release()
	hook.Sweep(n.ctx)
	assert.NoDirExists(t, filepath.Dir(older.Path))
	hook.Release()
}

func noexec(string) (bool, error) { return true, nil }

// choose finds NVIDIA's program if the state directory is mounted with noexec.
func (n *hookNode) choose() (*nvidiaHook, error) {
	hook := &nvidiaHook{
		setting: n.cfg.Driver.CDIHook, host: n.host, ask: n.abilities, logger: klog.FromContext(n.ctx),
		install: installImage(n.ctx, n.options(), cdi.Hooks{Disk: disk.OS{}, Dir: n.cfg.ProgramsDir(), NoExec: noexec}),
	}
	return hook, hook.begin(n.ctx)
}

func TestChooseHook_StateDirMountedNoExec_RefusedByName(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	_, err := n.choose()
	require.ErrorIs(t, err, cdi.ErrNoExec)
	for _, part := range []string{n.cfg.ProgramsDir(), "noexec", "--state-dir", "stateDir", n.cfg.Paths.StateDir} {
		require.ErrorContains(t, err, part)
	}
}

// TestChooseHook_HostsHook_StateDirNotUsed: none of our programs is executed then.
func TestChooseHook_HostsHook_StateDirNotUsed(t *testing.T) {
	t.Parallel()
	for name, named := range map[string]string{"named": "/opt/hook", "found": "", "host": config.HostCDIHook} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.cfg.Driver.CDIHook = named
			want := cdi.HostHooks[0]
			if filepath.IsAbs(named) {
				want = named
			}
			n.hosts(t, want, helpOf(t, "nvidia-cdi-hook-1.20.1"))
			hook, err := n.choose()
			require.NoError(t, err)
			assert.Equal(t, want, hook.last.path)
			assert.NoDirExists(t, n.cfg.Paths.StateDir)
		})
	}
}

// TestInstall_StateDirUnseenOnTheHost_Refused: the host's mounts decide whether programs can be executed there, because the mounts of the
// plugin's own container use other options.
func TestInstall_StateDirUnseenOnTheHost_Refused(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	require.NoError(t, os.RemoveAll(n.onHost(n.cfg.Paths.StateDir)))
	_, err := n.install()
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

func TestInstall_ImageHasNone_Served(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	n.image = "/does/not/exist"
	hook, err := n.install()
	require.NoError(t, err)
	assert.Empty(t, hook.DriverHook())
	hook.Release()
}

// TestInstall_UnreachableDirectory_Logged: the hook works in all pods except pods in a user namespace.
func TestInstall_UnreachableDirectory_Logged(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	require.NoError(t, os.Chmod(n.onHost(n.cfg.Paths.StateDir), 0o750))
	hook, err := n.install()
	require.NoError(t, err)
	hook.Release()
	assert.Contains(t, n.logs(), "CDI hooks may fail in pods with hostUsers false")
	assert.Contains(t, n.logs(), "users other than root cannot traverse "+n.cfg.Paths.StateDir+" (mode 0750)")
}

// TestSweep_Failing_LoggedOnce: a sweep is tried every minute.
func TestSweep_Failing_LoggedOnce(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	foreign := filepath.Join(n.cfg.FormerProgramsDir(), "before", "note")
	require.NoError(t, os.MkdirAll(foreign, 0o755))
	hook, err := n.install()
	require.NoError(t, err)
	logged := n.logs()
	assert.Contains(t, logged, "Removing hook programs of other versions failed and will be retried")
	hook.Sweep(n.ctx)
	assert.Equal(t, logged, n.logs())
	require.NoError(t, os.Remove(foreign))
	hook.Sweep(n.ctx)
	assert.NoDirExists(t, n.cfg.FormerProgramsDir())
	hook.Release()
}
