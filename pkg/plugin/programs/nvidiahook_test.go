package programs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/cdihook"
)

// helpOf returns the hooks in the help of NVIDIA's program of that version.
func helpOf(t *testing.T, program string) []string {
	t.Helper()
	help, err := os.ReadFile(filepath.Join("../cdihook/testdata", program+".txt"))
	require.NoError(t, err)
	return cdihook.Parse(string(help))
}

// hosts creates a program on the host that lists those hooks; nil: it prints no help.
func (n *hookNode) hosts(t *testing.T, path string, hooks []string) {
	t.Helper()
	seen := n.onHost(path)
	require.NoError(t, os.MkdirAll(filepath.Dir(seen), 0o755))
	n.mu.Lock()
	n.hooks = hooks
	n.mu.Unlock()
	require.NoError(t, os.WriteFile(seen+".new", []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Rename(seen+".new", seen))
}

// needed are the hooks of the driver.
var needed = []string{"create-symlinks", "disable-device-node-modification", "update-ldcache"}

// programs returns the program and the first arguments of each hook of a spec.
func programs(hook *Set) map[string][]string {
	common := &specs.ContainerEdits{}
	for _, name := range needed {
		common.Hooks = append(common.Hooks, cdi.CreateContainerHook(hook.DriverHook(), name, "--folder", "/lib"))
	}
	got := map[string][]string{}
	for _, h := range hook.nvidia.edits(common).Hooks {
		i := len(h.Args) - 3
		got[h.Args[i]] = append([]string{h.Path}, h.Args[:i]...)
	}
	return got
}

// TestNVIDIAHook_EachVersionAndSetting_ProgramHasTheHook: a program that does not support its hook fails the container.
func TestNVIDIAHook_EachVersionAndSetting_ProgramHasTheHook(t *testing.T) {
	t.Parallel()
	const host, ctk, named = "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-ctk", "/opt/toolkit/nvidia-cdi-hook"
	own := filepath.Join("programs", testVersion, cdi.HookName)
	of := func(program string) []string { return []string{program, filepath.Base(program)} }
	ofCTK := func(program string) []string { return append(of(program), "hook") }
	for name, c := range map[string]struct {
		setting, program, version string
		// want are the programs of the hooks of needed; nil: the hook is omitted.
		want [3][]string
	}{
		"1.16":            {"", host, "nvidia-cdi-hook-1.16.2", [3][]string{of(host), of(own), of(host)}},
		"1.17":            {"", host, "nvidia-cdi-hook-1.17.8", [3][]string{of(host), of(own), of(host)}},
		"1.18":            {"", host, "nvidia-cdi-hook-1.18.0", [3][]string{of(host), of(host), of(host)}},
		"no help":         {"", host, "", [3][]string{of(own), of(own), of(own)}},
		"none":            {"", "", "", [3][]string{of(own), of(own), of(own)}},
		"only ctk":        {"", ctk, "nvidia-ctk-1.15.0", [3][]string{of(own), of(own), of(own)}},
		"host 1.17":       {config.HostCDIHook, host, "nvidia-cdi-hook-1.17.4", [3][]string{of(host), nil, of(host)}},
		"host 1.20":       {config.HostCDIHook, host, "nvidia-cdi-hook-1.20.1", [3][]string{of(host), of(host), of(host)}},
		"host ctk 1.15":   {config.HostCDIHook, ctk, "nvidia-ctk-1.15.0", [3][]string{ofCTK(ctk), nil, ofCTK(ctk)}},
		"host ctk 1.20":   {config.HostCDIHook, ctk, "nvidia-ctk-1.20.1", [3][]string{ofCTK(ctk), ofCTK(ctk), ofCTK(ctk)}},
		"host, no help":   {config.HostCDIHook, host, "", [3][]string{of(host), nil, of(host)}},
		"own":             {config.OwnCDIHook, host, "nvidia-cdi-hook-1.20.1", [3][]string{of(own), of(own), of(own)}},
		"path 1.17":       {named, named, "nvidia-cdi-hook-1.17.8", [3][]string{of(named), nil, of(named)}},
		"path 1.19":       {named, named, "nvidia-cdi-hook-1.19.0", [3][]string{of(named), of(named), of(named)}},
		"setting is none": {config.NoCDIHook, host, "nvidia-cdi-hook-1.20.1", [3][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.cfg.Driver.CDIHook = c.setting
			if c.program != "" {
				n.hosts(t, c.program, nil)
			}
			if c.version != "" {
				n.hooks = helpOf(t, c.version)
			}
			hook, err := n.install()
			require.NoError(t, err)
			defer hook.Release()
			if c.setting == config.NoCDIHook {
				assert.Empty(t, hook.DriverHook(), "the driver has no hooks")
				return
			}
			want := map[string][]string{}
			for i, at := range c.want {
				if at == nil {
					continue
				}
				if at[0] == own {
					at = append([]string{filepath.Join(n.cfg.Paths.StateDir, own)}, at[1:]...)
				}
				want[needed[i]] = at
			}
			assert.Equal(t, want, programs(hook))
			for _, at := range want {
				if !slices.Contains(n.asked, at[0]) {
					assert.FileExists(t, at[0])
				}
			}
			asked := len(n.asked)
			assert.LessOrEqual(t, asked, 1)
			assert.Equal(t, want, programs(hook))
			assert.Len(t, n.asked, asked, "once for each file")
			for _, at := range c.want {
				if at == nil {
					assert.Contains(t, n.logs(), `Omitting a CDI hook`)
				}
			}
		})
	}
}

// TestNVIDIAHook_HostsFileReplaced_HelpReadAgain: toolkits are upgraded and downgraded while the plugin runs.
func TestNVIDIAHook_HostsFileReplaced_HelpReadAgain(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	path := cdi.HostHooks[0]
	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.18.0"))
	hook, err := n.install()
	require.NoError(t, err)
	defer hook.Release()
	const changed = "disable-device-node-modification"
	own := filepath.Join(n.cfg.Paths.StateDir, "programs", testVersion, cdi.HookName)
	assert.Equal(t, path, programs(hook)[changed][0])
	assert.NoFileExists(t, own, "the host's has all")

	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.17.4"))
	eventually(t, func() bool {
		now := programs(hook)
		assert.Equal(t, own, now[changed][0])
		return now["update-ldcache"][0] == path
	}, "the hooks of the host's program are read")
	assert.FileExists(t, own)

	require.NoError(t, os.Remove(n.onHost(path)))
	assert.Equal(t, own, programs(hook)["update-ldcache"][0], "the toolkit was removed")
	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.20.1"))
	eventually(t, func() bool { return programs(hook)[changed][0] == path }, "the toolkit is there again")
	assert.Equal(t, 3, n.askedTimes())
}

// TestNVIDIAHook_ReplacedProgramHangs_ClaimsDoNotWait: they use the image's program, or the hooks of the previous one; the program is asked
// once for any number of claims.
func TestNVIDIAHook_ReplacedProgramHangs_ClaimsDoNotWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, image, want string }{
		"auto":          {"", "own", "own"},
		"host":          {config.HostCDIHook, "own", cdi.HostHooks[0]},
		"without image": {"", "/does/not/exist", cdi.HostHooks[0]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.cfg.Driver.CDIHook = c.setting
			if c.image != "own" {
				n.image = c.image
			}
			n.hosts(t, cdi.HostHooks[0], helpOf(t, "nvidia-cdi-hook-1.18.0"))
			hook, err := n.install()
			require.NoError(t, err)
			defer hook.Release()
			want := c.want
			if want == "own" {
				want = filepath.Join(n.cfg.ProgramsDir(), testVersion, cdi.HookName)
			}
			n.hang = make(chan struct{})
			n.hosts(t, cdi.HostHooks[0], helpOf(t, "nvidia-cdi-hook-1.17.4"))
			for range 3 {
				got := programs(hook)
				for _, name := range needed {
					assert.Equal(t, []string{want, cdi.HookName}, got[name])
				}
			}
			close(n.hang)
			eventually(t, func() bool {
				now := programs(hook)
				without := now["disable-device-node-modification"] // 1.17 does not support it
				return now["update-ldcache"][0] == cdi.HostHooks[0] && (len(without) == 0) == (c.want != "own")
			}, "the answer is used")
			assert.Equal(t, 2, n.askedTimes())
		})
	}
}

// TestNVIDIAHook_HookLeftOut_LoggedOnceOfEachFile: also if claims are prepared while the file is read.
func TestNVIDIAHook_HookLeftOut_LoggedOnceOfEachFile(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	n.cfg.Driver.CDIHook = config.HostCDIHook
	lacking := helpOf(t, "nvidia-cdi-hook-1.17.4")
	n.hosts(t, cdi.HostHooks[0], lacking)
	hook, err := n.install()
	require.NoError(t, err)
	defer hook.Release()
	logged := func() int {
		assert.Len(t, programs(hook), 2)
		return strings.Count(n.logs(), "Omitting a CDI hook")
	}
	assert.Equal(t, 1, logged())
	n.hang = make(chan struct{})
	n.hosts(t, cdi.HostHooks[0], lacking)
	for range 3 {
		assert.Equal(t, 1, logged())
	}
	close(n.hang)
	eventually(t, func() bool { return logged() == 2 }, "the answer is used")
	assert.Equal(t, 2, logged())
}

// TestNVIDIAHook_ReplacedWhileAsked_AskedAgain: the answer belongs to a deleted file.
func TestNVIDIAHook_ReplacedWhileAsked_AskedAgain(t *testing.T) {
	t.Parallel()
	n := newHookNode(t)
	path := cdi.HostHooks[0]
	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.18.0"))
	hook, err := n.install()
	require.NoError(t, err)
	defer hook.Release()
	hang := make(chan struct{})
	n.hang = hang
	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.20.1"))
	programs(hook)
	eventually(t, func() bool { return n.askedTimes() == 2 }, "it is asked")
	n.mu.Lock()
	n.hang = nil
	n.mu.Unlock()
	n.hosts(t, path, helpOf(t, "nvidia-cdi-hook-1.17.4"))
	close(hang)
	own := filepath.Join(n.cfg.ProgramsDir(), testVersion, cdi.HookName)
	eventually(t, func() bool {
		now := programs(hook)
		assert.Equal(t, own, now["disable-device-node-modification"][0], "1.17 does not have it")
		return now["update-ldcache"][0] == path
	}, "the new file is asked")
	assert.Equal(t, 3, n.askedTimes())
}

// TestNVIDIAHook_OwnCannotBeInstalled_HostsHooksUsed: without prism's copy, hooks that the host's program does not support are omitted.
func TestNVIDIAHook_OwnCannotBeInstalled_HostsHooksUsed(t *testing.T) {
	t.Parallel()
	for name, hooks := range map[string][]string{"old": helpOf(t, "nvidia-cdi-hook-1.17.8"), "no help": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.hosts(t, cdi.HostHooks[1], hooks)
			n.image = "/does/not/exist"
			hook, err := n.install()
			require.NoError(t, err)
			defer hook.Release()
			at := []string{cdi.HostHooks[1], cdi.HookName}
			assert.Equal(t, map[string][]string{"create-symlinks": at, "update-ldcache": at}, programs(hook))
			assert.Contains(t, n.logs(), "Omitting a CDI hook")
			assert.Contains(t, n.logs(), "the image of the kubelet plugin does not contain /does/not/exist")
		})
	}
}

// TestInstall_SettingCannotBeMet_RefusedByName: at the start, because containers of all claims would fail.
func TestInstall_SettingCannotBeMet_RefusedByName(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		config.HostCDIHook: "--cdi-hook=host: no executable /usr/bin/nvidia-cdi-hook, /usr/local/bin/nvidia-cdi-hook, " +
			"/usr/local/nvidia/toolkit/nvidia-cdi-hook, /run/current-system/sw/bin/nvidia-cdi-hook, /usr/bin/nvidia-ctk, /usr/local/bin/nvidia-ctk, " +
			"/usr/local/nvidia/toolkit/nvidia-ctk, /run/current-system/sw/bin/nvidia-ctk on the host",
		config.OwnCDIHook: "the image of the kubelet plugin does not contain /does/not/exist: file does not exist",
		"/opt/hook":       "--cdi-hook: no executable /opt/hook on the host",
	} {
		n := newHookNode(t)
		n.cfg.Driver.CDIHook, n.image = setting, "/does/not/exist"
		_, err := n.install()
		require.EqualError(t, err, want)
	}
}

// abilities returns the hooks of a program of the host.
func (n *hookNode) abilities(_ context.Context, path string) ([]string, error) {
	n.mu.Lock()
	n.asked = append(n.asked, path)
	hooks, hang := n.hooks, n.hang
	n.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if hooks == nil {
		return nil, assert.AnError
	}
	return hooks, nil
}

// askedTimes returns the number of calls of abilities.
func (n *hookNode) askedTimes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.asked)
}

// eventually waits until a condition holds.
func eventually(t *testing.T, so func() bool, what string) {
	t.Helper()
	require.Eventually(t, so, time.Minute, 5*time.Millisecond, what)
}
