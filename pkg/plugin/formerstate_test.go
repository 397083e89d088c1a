package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/profiler"
)

// inState makes a file in a state directory.
func inState(t *testing.T, state, path string) string {
	t.Helper()
	path = filepath.Join(state, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o755))
	return path
}

// otherPaths is a host whose directories are written by other paths than they have.
type otherPaths struct {
	wiredHost
	dir string
}

func (h otherPaths) Writable(path string) (dir string, release func(), err error) {
	there, done, err := h.wiredHost.Writable(path)
	if err != nil {
		return "", nil, err
	}
	link := filepath.Join(h.dir, "writable")
	return link, func() { _ = os.Remove(link); done() }, os.Symlink(there, link)
}

// TestRecover_StateDirChanged_ProgramsStayWhileNamed: the runtime executes them for containers that start again. Also together with the driver's name,
// and there and back.
func TestRecover_StateDirChanged_ProgramsStayWhileNamed(t *testing.T) {
	t.Parallel()
	for name, driver := range map[string]string{"same driver": nameBefore, "other driver": nameNow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := renamed(t)
			n.adapters.Host = otherPaths{n.adapters.Host.(wiredHost), t.TempDir()}
			n.cfg.DriverName = nameBefore
			before := n.cfg.Paths.StateDir
			p, err := Build(t.Context(), n.cfg, n.adapters)
			require.NoError(t, err)
			program := inState(t, before, "programs/v1/"+cdi.OwnHookName)
			for _, name := range profiler.Programs {
				inState(t, before, "programs/v1/"+name)
			}
			require.NoError(t, p.Machine.State.Specs.Write("uid", &specs.Spec{Kind: "k8s." + nameBefore + "/claim", Devices: []specs.Device{{
				Name: "uid-0", ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "createContainer", Path: program}}},
			}}}))
			require.NoError(t, p.Close())
			n.cfg.DriverName = driver
			for _, state := range []string{"third-state", "other-state"} {
				n.cfg.Paths.StateDir = filepath.Join(filepath.Dir(before), state)
				p, err = Build(t.Context(), n.cfg, n.adapters)
				require.NoError(t, err)
				require.NoError(t, p.Close())
			}
			p = n.build(t)
			recoverNode := func() error {
				return collected{Transaction: p.Claims, outside: p.Machine.State.outside, specs: p.Machine.State.Specs}.Recover(t.Context())
			}
			require.NoError(t, recoverNode())
			assert.FileExists(t, program)
			assert.Equal(t, []place{{before, nameBefore}, {n.cfg.Paths.StateDir, driver}}, p.Machine.State.outside.states.all, "nothing is in the third")
			require.NoError(t, p.Machine.State.Specs.Remove("uid"))
			require.NoError(t, recoverNode())
			left, err := os.ReadDir(before)
			require.NoError(t, err)
			assert.Empty(t, left)
			text, err := os.ReadFile(filepath.Join(n.cfg.PluginDir(), statesFile))
			require.NoError(t, err)
			assert.NotContains(t, string(text), before, "the former directory is forgotten")
		})
	}
}

// TestRecover_SpecInFormerDirectory_ProgramsStay: a spec in a former CDI directory names programs too.
func TestRecover_SpecInFormerDirectory_ProgramsStay(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]func(*testing.T, *wired, string) (path string){
		"the present spec cannot be written": func(t *testing.T, n *wired, spec string) string {
			t.Helper()
			path := filepath.Join(n.cfg.Paths.CDIRoot, filepath.Base(spec)+disk.TempSuffix)
			require.NoError(t, os.MkdirAll(path, 0o755))
			return path
		},
		"no spec can be written": func(t *testing.T, n *wired, spec string) string {
			t.Helper()
			n.cfg.Paths.CDIRoot = filepath.Dir(spec)
			require.NoError(t, os.Remove(spec))
			require.NoError(t, os.MkdirAll(spec+disk.TempSuffix, 0o755))
			return spec + disk.TempSuffix
		},
		"the former directory has other files": func(t *testing.T, _ *wired, spec string) string {
			t.Helper()
			path := filepath.Join(filepath.Dir(spec), nameBefore+"_metadata_uid-old_gpu.json")
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, claims := renamed(t, "old")
			n.cfg.DriverName = nameBefore
			program := inState(t, n.cfg.Paths.StateDir, "programs/v1/"+cdi.OwnHookName)
			spec := n.specBefore(claims[0])
			text, err := os.ReadFile(spec)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(spec, append(text, `"`+program+`"`...), 0o600))
			n.cfg.Paths.CDIRoot = filepath.Join(filepath.Dir(n.cfg.Paths.CDIRoot), "other-cdi")
			n.cfg.Paths.StateDir = filepath.Join(filepath.Dir(n.cfg.Paths.StateDir), "other-state")
			blocked := block(t, n, spec)
			p := n.build(t)
			_ = p.leader.reconciler.Node.Recover(t.Context())
			assert.FileExists(t, program)
			require.NoError(t, os.RemoveAll(blocked))
			require.NoError(t, p.leader.reconciler.Node.Recover(t.Context()))
			assert.NoFileExists(t, program)
		})
	}
}

// TestRecover_StateDirChanged_ReportsReported: if the former directory contains more than programs, an Event of the Node says so, once.
func TestRecover_StateDirChanged_ReportsReported(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	n.cfg.DriverName = nameBefore
	before := n.cfg.Paths.StateDir
	report := inState(t, before, "profiles/uid/report")
	order := inState(t, before, "collector/uid/order")
	foreign := inState(t, before, "of-another-driver")
	p, err := Build(t.Context(), n.cfg, n.adapters)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	n.cfg.Paths.StateDir = filepath.Join(filepath.Dir(before), "other-state")
	p = n.build(t)
	n.events.Written()
	for range 2 {
		require.NoError(t, p.leader.reconciler.Node.Recover(t.Context()))
	}
	var said []string
	for _, event := range n.events.Written() {
		if strings.Contains(event, "StateDirectoryChanged") {
			said = append(said, event)
		}
	}
	assert.Equal(t, []string{"Warning StateDirectoryChanged Reconcile: the former state directory still has [\"" + before + "/profiles\" \"" + before + `/collector"], which are not used: to keep ` +
		"reports of profiles, set stateDir to " + before + " again; else delete these folders when no profiled pod of before the change runs"}, said)
	assert.FileExists(t, report)
	assert.FileExists(t, order)
	assert.FileExists(t, foreign)
}

// TestRecover_StateDirBelowFormer_PresentStays: only the former directory's own programs are removed, and no Event advises to delete the
// present directory.
func TestRecover_StateDirBelowFormer_PresentStays(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"v2", "programs", "programs/v2", "profiles", "tools/v2", "collector/v2"} {
		t.Run(below, func(t *testing.T) {
			t.Parallel()
			n, _ := renamed(t)
			n.cfg.DriverName = nameBefore
			before := n.cfg.Paths.StateDir
			p, err := Build(t.Context(), n.cfg, n.adapters)
			require.NoError(t, err)
			require.NoError(t, p.Close())
			n.cfg.Paths.StateDir = filepath.Join(before, below)
			p = n.build(t)
			present := []string{inState(t, n.cfg.Paths.StateDir, "programs/v1/"+cdi.OwnHookName), inState(t, n.cfg.Paths.StateDir, "profiles/uid/report")}
			n.events.Written()
			require.NoError(t, p.Machine.State.outside.states.sweep(t.Context(), p.Machine.State.Specs))
			for _, path := range present {
				assert.FileExists(t, path)
			}
			assert.NotContains(t, strings.Join(n.events.Written(), "\n"), "StateDirectoryChanged")
			assert.Equal(t, []place{{n.cfg.Paths.StateDir, nameBefore}}, p.Machine.State.outside.states.all, "the former directory is forgotten")
		})
	}
}

// TestOpenPlaces_VersionBefore_DefaultAssumed: it did not write which directory it used.
func TestOpenPlaces_VersionBefore_DefaultAssumed(t *testing.T) {
	t.Parallel()
	n, _ := renamed(t)
	require.NoError(t, os.MkdirAll(n.cfg.PluginDir(), 0o750))
	for _, text := range []string{"", "damaged", "null"} {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(n.cfg.PluginDir(), statesFile), []byte(text), 0o600))
		}
		p, err := openPlaces(n.cfg, n.adapters, statesFile, "/now", "/assumed")
		require.NoError(t, err)
		if text != "null" {
			assert.Contains(t, p.all, place{"/assumed", nameNow}, text)
		}
		again, err := openPlaces(n.cfg, n.adapters, statesFile, "/now", "/ignored")
		require.NoError(t, err)
		assert.Equal(t, p.all, again.all, "it is stored")
	}
}
