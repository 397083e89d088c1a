package programs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWithLdconfig_Host_HookOnlyWithIt: the hook that updates the linker's cache fails a container on a host without ldconfig.
func TestWithLdconfig_Host_HookOnlyWithIt(t *testing.T) {
	t.Parallel()
	const hook = "/usr/bin/nvidia-cdi-hook"
	for name, c := range map[string]struct {
		host, hook             string
		wantHook, wantLdconfig string
	}{
		"usual":        {"/sbin/ldconfig", hook, hook, ""},
		"Talos":        {"/usr/local/glibc/sbin/ldconfig", hook, hook, "/usr/local/glibc/sbin/ldconfig"},
		"NixOS":        {"/run/current-system/sw/bin/ldconfig", hook, hook, "/run/current-system/sw/bin/ldconfig"},
		"by the value": {"/opt/site/bin/ldconfig", hook, hook, "/opt/site/bin/ldconfig"},
		"none":         {"/opt/other/ldconfig", hook, "", ""},
		"no hook":      {"/usr/sbin/ldconfig", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHookNode(t)
			n.hosts(t, c.host, nil)
			program, ldconfig := WithLdconfig(n.ctx, n.host, []string{"/opt/site/bin"}, c.hook)
			assert.Equal(t, []string{c.wantHook, c.wantLdconfig}, []string{program, ldconfig})
			if c.hook != c.wantHook {
				assert.Contains(t, n.logs(), "the host has no ldconfig")
				assert.Contains(t, n.logs(), "/opt/site/bin/ldconfig")
			}
		})
	}
}
