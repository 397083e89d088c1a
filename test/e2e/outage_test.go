package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// TestWholeAPIServerDown: a container ends while the API server is down, and the plugin unprepares its claim: the running plugin, and one
// that started meanwhile. Afterwards everything is as before.
func TestWholeAPIServerDown(t *testing.T) {
	ns := exclusive(t)
	plugin := ns.freshPlugin(t)
	slices := ns.untainted(t)
	ns.apply("whole-gpu/pod.yaml")
	ns.apply("two-gpus/pod.yaml")
	first, second := ns.ready("whole-gpu"), ns.ready("two-gpus")
	firstUID, secondUID := string(ns.claimOf(first, "gpu").UID), string(ns.claimOf(second, "gpus").UID)
	ns.grantedTo(first, "gpu") // the last step that needs the API server
	ns.grantedTo(second, "gpus")

	pids := []string{ns.pid(t, first), ns.pid(t, plugin), ns.pid(t, second)}
	ns.withoutAPI(func() {
		ns.must(t, ns.onNode("kill", "-KILL", pids[0])...)
		start := time.Now()
		eventually(t, startLimit, func() error { return ns.cleanedUp(firstUID) })
		t.Logf("the first claim was gone from the node %.1f s after its container", time.Since(start).Seconds())
		files, err := ns.keptFor(secondUID, ns.name)
		require.NoError(t, err)
		assert.Len(t, files, claimFiles, "of the pod that runs")

		ns.must(t, ns.onNode("kill", "-KILL", pids[1], pids[2])...)
		start = time.Now()
		eventually(t, startLimit, func() error { return ns.cleanedUp(secondUID) })
		t.Logf("the second one, and the plugin was killed, too: %.1f s", time.Since(start).Seconds())
		_, err = ns.try("get", "--raw", "/healthz")
		require.Error(t, err, "the API server is stopped")
	})

	start := time.Now()
	eventually(t, startLimit, func() error { return ns.restarted(plugin) })
	t.Logf("the API server knew that the plugin is back after %.1f s", time.Since(start).Seconds())
	for _, name := range []string{"whole-gpu", "two-gpus"} {
		eventually(t, startLimit, func() error { return ns.ended(name) })
	}
	t.Logf("the API server knew that the pods ended after %.1f s", time.Since(start).Seconds())
	after, err := ns.resourceSlices()
	require.NoError(t, err)
	require.Len(t, after, len(slices))
	for i := range slices {
		assert.Equal(t, slices[i].UID, after[i].UID)
		assert.Equal(t, slices[i].Generation, after[i].Generation, "pool %s: nothing changed, so nothing is published", after[i].Spec.Pool.Name)
	}
	ns.must(t, ns.localcluster("restart", nodeName, "kubelet")...) // the kubelet retries after up to a minute, too
	ns.apply("shared-by-containers/pod.yaml")
	grants := ns.grantedTo(ns.ready("two-containers"), "gpu")
	t.Logf("a new pod had its GPU after %.1f s", time.Since(start).Seconds())
	ns.sees("two-containers", "first", grants...)
	require.NoError(t, ns.silence())
}

// untainted returns the ResourceSlices when no device is tainted: an earlier test may leave taints for a moment.
func (c *cluster) untainted(t *testing.T) (slices []resourceapi.ResourceSlice) {
	t.Helper()
	eventually(t, startLimit, func() (err error) {
		slices, err = c.resourceSlices()
		for i := range slices {
			for _, device := range slices[i].Spec.Devices {
				if len(device.Taints) > 0 {
					return fmt.Errorf("device %s is tainted with %s", device.Name, device.Taints[0].Key)
				}
			}
		}
		return err
	})
	return slices
}

// withoutAPI calls do while the API server is stopped.
func (ns *namespace) withoutAPI(do func()) {
	ns.t.Helper()
	begin := time.Now()
	start := func() { ns.must(ns.t, ns.localcluster("start", "apiserver")...) }
	started := false
	ns.t.Cleanup(func() {
		if !started {
			start()
		}
	})
	ns.must(ns.t, ns.localcluster("stop", "apiserver")...)
	do()
	start()
	started = true
	ns.t.Logf("there was no API server for %.1f s", time.Since(begin).Seconds())
	// They retry after half a minute or more. This test is not about their retries.
	for _, component := range []string{"controller-manager", "scheduler"} {
		ns.must(ns.t, ns.localcluster("restart", component)...)
	}
}

// cleanedUp returns an error until no file of the claim is on the node.
func (ns *namespace) cleanedUp(uid string) error {
	files, err := ns.keptFor(uid, "none")
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("the node still has %s", strings.Join(files, ", "))
	}
	return err
}

// ended returns an error until, on the API server, the pod's containers have ended and its claims are without devices.
func (ns *namespace) ended(name string) error {
	var pod corev1.Pod
	if err := ns.read(&pod, "pod", name); err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodFailed {
		return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
	}
	out, err := ns.try("get", "resourceclaims", "--output=jsonpath={.items[*].status.reservedFor[*].name}")
	if err == nil && strings.Contains(out, name) {
		err = errors.New("a claim is still reserved for " + name)
	}
	return err
}
