package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLoad_PathsWithSlashes_Cleaned: a trailing slash in a path, as users write it, changes nothing.
func TestLoad_PathsWithSlashes_Cleaned(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	plugin, err := LoadPlugin([]string{
		"--node-name=n", "--cdi-root=/etc//cdi/", "--state-dir=/opt/prism/", "--run-dir=/run/prism/", "--driver-root=/run/nvidia/driver/",
		"--cdi-hook=/usr/bin//nvidia-cdi-hook", "--kubelet-plugins-dir=/data/kubelet/plugins/", "--kubelet-registrar-dir=/data/kubelet/plugins_registry/",
		"--host-root=/host/", "--node-config=/etc/prism//node.yaml",
	}, none)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"/etc/cdi", "/opt/prism", "/run/prism", "/run/nvidia/driver", "/usr/bin/nvidia-cdi-hook", "/data/kubelet/plugins", "/data/kubelet/plugins_registry",
		"/host", "/etc/prism/node.yaml",
	}, []string{
		plugin.Paths.CDIRoot, plugin.Paths.StateDir, plugin.RunDir(), plugin.Driver.Root, plugin.Driver.CDIHook, plugin.Paths.KubeletPlugins,
		plugin.Paths.KubeletRegistrar, plugin.Paths.HostRoot, plugin.NodeConfig.File,
	})
	plugin, err = LoadPlugin([]string{"--node-name=n", "--driver-root=/", "--cdi-hook=" + NoCDIHook}, none)
	require.NoError(t, err)
	assert.Equal(t, []string{"/", NoCDIHook}, []string{plugin.Driver.Root, plugin.Driver.CDIHook})

	exporter, err := LoadExporter([]string{"--node-name=n", "--run-dir=/run/prism/", "--driver-root=/run/nvidia//driver/", "--cri-socket=/run//containerd.sock"}, none)
	require.NoError(t, err)
	assert.Equal(t, []string{"/run/prism", "/run/nvidia/driver", "/run/containerd.sock"}, []string{exporter.RunDir, exporter.DriverRoot, exporter.Sources.CRISocket})

	mpsd, err := LoadMPSD([]string{"--run-dir=/run/prism/", "--nvidia-driver-root=/run/nvidia/driver/"}, none)
	require.NoError(t, err)
	assert.Equal(t, []string{"/run/prism", "/run/nvidia/driver"}, []string{mpsd.RunDir, mpsd.DriverRoot})

	tool, err := LoadTool([]string{"--version=2025.5.1", "--path=/opt/nvidia//nsight/", "--state-dir=/opt/prism/", "--cdi-roots=/etc/cdi/,/run/cdi/"}, none)
	require.NoError(t, err)
	assert.Equal(t, []string{"/opt/nvidia/nsight", "/opt/prism", "/etc/cdi", "/run/cdi"}, append([]string{tool.Path, tool.StateDir}, tool.CDIRoots...))
}
