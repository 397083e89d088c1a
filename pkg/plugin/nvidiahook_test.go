package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/cdihook"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// hookedSession is a driver that needs hooks.
type hookedSession struct {
	inventory.Session
	hook string
}

func (s hookedSession) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	edits, err := s.Session.CommonEdits(ctx)
	for _, name := range []string{"create-symlinks", "disable-device-node-modification", "update-ldcache"} {
		edits.Hooks = append(edits.Hooks, cdi.CreateContainerHook(s.hook, name))
	}
	return edits, err
}

// oldHost is a host with a program of toolkit 1.17.
type oldHost struct{ wiredHost }

func (oldHost) Program(paths ...string) (string, bool) { return paths[0], true }

func (oldHost) FileID(string) (hostfs.FileID, bool) { return hostfs.FileID{Inode: 1}, true }

// TestBuild_HostsHookIsOld_SpecHasOtherProgram: the spec of a claim names for each hook a program that has it.
func TestBuild_HostsHookIsOld_SpecHasOtherProgram(t *testing.T) {
	t.Parallel()
	n := newWired(t)
	open := n.adapters.Driver
	n.adapters.Driver = func(hook string) inventory.Opener {
		return func(ctx context.Context, at hostfs.DriverRoot) (inventory.Session, error) {
			session, err := open(hook)(ctx, at)
			return hookedSession{session, hook}, err
		}
	}
	n.adapters.Host = oldHost{n.adapters.Host.(wiredHost)}
	help, err := os.ReadFile("cdihook/testdata/nvidia-cdi-hook-1.17.8.txt")
	require.NoError(t, err)
	var asked atomic.Int32
	n.adapters.HookAbilities = func(context.Context, string) ([]string, error) {
		asked.Add(1)
		return cdihook.Parse(string(help)), nil
	}
	n.adapters.HookImage = filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(n.adapters.HookImage, []byte("program"), 0o600))
	n.cfg.Driver.CDIHook = ""
	p := n.build(t)
	for i, name := range []string{"a", "b"} {
		rc := n.claim(t, name, i)
		require.NoError(t, prepared(t.Context(), p, rc))
		file, err := filepath.Glob(filepath.Join(n.cfg.Paths.CDIRoot, "*"+string(rc.UID)+"*"))
		require.NoError(t, err)
		require.Len(t, file, 1)
		text, err := os.ReadFile(file[0])
		require.NoError(t, err)
		var spec specs.Spec
		require.NoError(t, json.Unmarshal(text, &spec))
		programs := map[string]string{}
		for _, h := range spec.ContainerEdits.Hooks {
			programs[h.Args[1]] = h.Path
		}
		own := filepath.Join(n.cfg.ProgramsDir(), testVersion, cdi.HookName)
		assert.Equal(t, map[string]string{
			"create-symlinks": cdi.HostHooks[0], "update-ldcache": cdi.HostHooks[0], "disable-device-node-modification": own,
		}, programs)
	}
	assert.Equal(t, int32(1), asked.Load(), "the help is read once, whatever number of claims there are")
}
