package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/hostfs/pcie"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/cdihook"
)

// TestLoadPlugin_CDIHookNone_Accepted: the chart's value nvidiaCDIHook sets it; any other text is a path.
func TestLoadPlugin_CDIHookNone_Accepted(t *testing.T) {
	t.Parallel()
	env := map[string]string{"NODE_NAME": "n0", "POD_UID": "uid", "PRISM_CDI_HOOK": "none"}
	cfg, err := config.LoadPlugin(nil, func(name string) string { return env[name] })
	require.NoError(t, err)
	assert.Equal(t, config.NoCDIHook, cfg.Driver.CDIHook)
	for _, word := range []string{config.HostCDIHook, config.OwnCDIHook} {
		env["PRISM_CDI_HOOK"] = word
		_, err = config.LoadPlugin(nil, func(name string) string { return env[name] })
		require.NoError(t, err)
	}
	env["PRISM_CDI_HOOK"] = "nothing"
	_, err = config.LoadPlugin(nil, func(name string) string { return env[name] })
	require.EqualError(t, err, `--cdi-hook: must be an absolute path of the host, or one of host, own, none, got "nothing"`)
}

// TestInstall_None_NoHook: even if the host has one.
func TestInstall_None_NoHook(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	program := filepath.Join(root, cdi.HostHooks[0])
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	specs, err := cdi.OpenDir(disk.OS{}, filepath.Join(root, "cdi"), cdi.Kind("gpu.prism.dev"))
	require.NoError(t, err)
	cfg := &config.Plugin{DriverName: "gpu.prism.dev", Paths: config.Paths{KubeletPlugins: filepath.Join(root, "plugins"), StateDir: filepath.Join(root, "state")}}
	for flag, want := range map[string]string{"": cdi.HostHooks[0], config.HostCDIHook: cdi.HostHooks[0], config.NoCDIHook: ""} {
		cfg.Driver.CDIHook = flag
		hook, err := Install(t.Context(), Options{
			Config: cfg, Version: testVersion, Disk: disk.OS{}, Host: pcie.New(root), Images: Images{NVIDIA: filepath.Join(root, "no-image-hook")},
			Abilities: cdihook.Asker{}.Hooks, Specs: specs,
		})
		require.NoError(t, err)
		assert.Equal(t, want, hook.DriverHook())
	}
}
