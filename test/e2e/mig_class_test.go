package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// profileClasses are the classes of the profiles in demo/specs.
var profileClasses = []string{"mig-1g-10gb.gpu.prism.dev", "mig-1g-10gb-me.gpu.prism.dev", "mig-2g-20gb.gpu.prism.dev", "mig-3g-40gb.gpu.prism.dev"}

// TestMIGProfileClass_NoSelector_PodSeesItsDevice: the controller created the class of a profile that the node publishes, and a claim that
// only names this class gets a MIG device of that profile.
func TestMIGProfileClass_NoSelector_PodSeesItsDevice(t *testing.T) {
	ns := migInParallel(t)
	for pod, profile := range map[string]string{"media": "1g.10gb+me", "medium": "2g.20gb"} {
		class := map[string]string{"1g.10gb+me": "mig-1g-10gb-me.gpu.prism.dev", "2g.20gb": "mig-2g-20gb.gpu.prism.dev"}[profile]
		ns.create(migPod(pod, class))
		assert.Equal(t, profile, ns.migDevice(pod).Profile)
		request := ns.claimOf(ns.pod(pod), "mig").Spec.Devices.Requests[0].Exactly
		require.NotNil(t, request)
		assert.Equal(t, class, request.DeviceClassName)
		assert.Empty(t, request.Selectors)
		var made resourceapi.DeviceClass
		require.NoError(t, ns.get(&made, "deviceclass", class))
		assert.Equal(t, controllerName, made.Labels["app.kubernetes.io/managed-by"])
		assert.Len(t, made.Spec.Selectors, 1)
	}
	require.NoError(t, ns.silence())
}

// hasClasses waits until DeviceClasses of these names exist.
func (c *cluster) hasClasses(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, startLimit, func() error {
		var list resourceapi.DeviceClassList
		err := c.get(&list, "deviceclasses")
		found := map[string]bool{}
		for _, class := range list.Items {
			found[class.Name] = true
		}
		for _, name := range names {
			if err == nil && !found[name] {
				err = fmt.Errorf("missing DeviceClass %s", name)
			}
		}
		return err
	})
}
