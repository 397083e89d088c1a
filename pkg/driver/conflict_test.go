package driver

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/publish"
)

func TestConflictsAreFoundAndEnd(t *testing.T) {
	t.Parallel()
	const devicePlugins, otherDRA = "/var/lib/kubelet/device-plugins/", "/var/lib/kubelet/plugins/gpu.nvidia.com/"
	for name, c := range map[string]struct {
		driver, socket string
		want           publish.Conflict
		says           string
	}{
		"a device plugin":     {"gpu.prism.dev", devicePlugins + "nvidia-gpu.sock", publish.ConflictDevicePlugin, "a device plugin hands them out too"},
		"its MIG devices":     {"gpu.prism.dev", devicePlugins + "nvidia-mig-1g.10gb.sock", publish.ConflictDevicePlugin, "a device plugin hands them out too"},
		"GKE's device plugin": {"gpu.prism.dev", devicePlugins + "nvidiaGPU-1763721600.sock", publish.ConflictDevicePlugin, "a device plugin hands them out too"},
		"network cards":       {"gpu.prism.dev", devicePlugins + "nvidia.com_hostdev.sock", "", ""},
		"NVIDIA's driver":     {"gpu.prism.dev", otherDRA + "dra.sock", publish.ConflictDRADriver, "the DRA driver gpu.nvidia.com hands them out too"},
		"our own":             {"gpu.nvidia.com", otherDRA + "dra.sock", "", ""},
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
						var found []string
						for _, socket := range sockets {
							matches, err := filepath.Match(filepath.Join(dir, pattern), socket)
							assert.NoError(t, err)
							if matches {
								found = append(found, socket)
							}
						}
						return found, err
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
				if !assert.Equal(t, []publish.Conflict{c.want}, set) {
					return // nothing is told, and time would never end
				}
				assert.Equal(t, "Warning Conflict Look: New claims get no GPU of this node: "+c.says+", as "+c.socket+
					" shows; remove it from the node, or keep Prism off it with kubeletPlugin.affinity of the chart", <-told)
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
