package helm

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// certificates matches certificates, which differ in each rendering.
var certificates = regexp.MustCompile(`(?m)LS0tLS[A-Za-z0-9+/=]+$|checksum/\S+ \S+$`)

// TestPaths_Slashes_RenderedClean: a trailing slash does not change a path of a host or container.
func TestPaths_Slashes_RenderedClean(t *testing.T) {
	t.Parallel()
	rendered := func(kubelet, cdi, state, root, hook, socket string) string {
		text := render(t, "--set", "kubeletRoot="+kubelet+",cdiRoot="+cdi+",stateDir="+state+",nvidiaDriverRoot="+root+",nvidiaCDIHook="+hook+",mps.enabled=true,"+
			"exporter.criSocket="+socket+",profiler.tools[0].version=2025.5.1,profiler.tools[0].image=example.com/nsys:1,profiler.tools[0].path=/opt/nsys")
		return certificates.ReplaceAllString(text, "")
	}
	assert.Equal(t, rendered("/data/kubelet", "/etc/cdi", "/opt/prism", "/run/nvidia/driver", "/usr/bin/nvidia-cdi-hook", "/run/containerd.sock"),
		rendered("/data/kubelet/", "/etc//cdi/", "/opt/prism//", "/run/nvidia/driver/", "//usr/bin/nvidia-cdi-hook", "/run//containerd.sock"))
	_, complaint, err := template(t, "--set", "stateDir=/opt/../prism")
	assert.Error(t, err)
	assert.Contains(t, complaint, "stateDir")
}
