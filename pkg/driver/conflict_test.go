package driver

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/publish"
)

func TestConflictsAreFoundAndEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		driver, dir, pattern, socket string
		want                         publish.Conflict
		says                         string
	}{
		"a device plugin": {"gpu.prism.dev", "/var/lib/kubelet/device-plugins", "nvidia-*.sock", "/var/lib/kubelet/device-plugins/nvidia-gpu.sock", publish.ConflictDevicePlugin,
			"a device plugin hands them out too, as /var/lib/kubelet/device-plugins/nvidia-gpu.sock shows"},
		"NVIDIA's driver": {"gpu.prism.dev", "/var/lib/kubelet/plugins/gpu.nvidia.com", "*.sock", "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock", publish.ConflictDRADriver,
			"the DRA driver gpu.nvidia.com hands them out too, as /var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock shows"},
		"our own": {"gpu.nvidia.com", "/var/lib/kubelet/plugins/gpu.nvidia.com", "*.sock", "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sockets []string
				var err error
				var set []publish.Conflict
				told := make(nodeEvents, 16)
				conflicts := &Conflicts{
					Sockets: func(dir, pattern string) ([]string, error) {
						if dir == c.dir && pattern == c.pattern {
							return sockets, err
						}
						return nil, nil
					},
					KubeletPlugins: "/var/lib/kubelet/plugins", DriverName: c.driver, Events: told,
					Set: func(with publish.Conflict) { set = append(set, with) },
				}
				stop := inBackground(t, func(ctx context.Context) error { return conflicts.Run(ctx) })
				defer stop()
				after(3 * conflictLook)
				assert.Empty(t, set)
				sockets = []string{c.socket}
				after(3 * conflictLook)
				if c.want == "" {
					assert.Empty(t, set)
					return
				}
				assert.Equal(t, []publish.Conflict{c.want}, set)
				assert.Equal(t, "Warning Conflict Look: New claims get no GPU of this node: "+c.says+
					"; remove it from the node, or keep Prism off it with kubeletPlugin.affinity of the chart", <-told)
				sockets, err = nil, errBad
				after(3 * conflictLook)
				assert.Len(t, set, 1, "who cannot look knows nothing")
				err = nil
				after(3 * conflictLook)
				assert.Equal(t, []publish.Conflict{c.want, ""}, set)
				assert.Equal(t, "Normal ConflictEnded Look: Nothing else hands out the GPUs any more: "+c.socket+" is gone", <-told)
				assert.Empty(t, told)
			})
		})
	}
}
