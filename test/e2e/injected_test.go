package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"tags.cncf.io/container-device-interface/specs-go"
)

// TestInjected_RuntimeReadsOtherDirectory_Reported: the claim is prepared, and its container does not get the GPU. From containerd 2.4 on,
// CDI cannot be turned off, but a runtime can still be configured with another directory of specs.
func TestInjected_RuntimeReadsOtherDirectory_Reported(t *testing.T) {
	ns := exclusive(t)
	ns.plugin(t)
	file := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_STATE")), "containerd.toml")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	restart := func(config []byte) {
		require.NoError(t, os.WriteFile(file, config, 0o644))
		ns.must(t, ns.localcluster("restart", nodeName, "containerd")...)
	}
	t.Cleanup(func() { restart(good) })
	// The file ends in the table of these settings.
	restart(append(good, "  cdi_spec_dirs = [\"/etc/cdi\"]\n"...))
	ns.warned("CDIUnavailable", "reads CDI specs in")

	ns.apply("whole-gpu/pod.yaml")
	ns.do("wait", "--for=condition=PodScheduled", "--timeout="+startLimit.String(), "pod/whole-gpu")
	eventually(t, startLimit, func() error { return ns.isInjected("whole-gpu", metav1.ConditionFalse) })
	assert.Equal(t, 1, checks(ns.hooks(string(ns.claimOf(ns.pod("whole-gpu"), "gpu").UID))))
	restart(good)
	pod := ns.ready("whole-gpu")
	eventually(t, startLimit, func() error { return ns.isInjected("whole-gpu", "") })
	ns.sees("whole-gpu", "main", ns.grantedTo(pod, "gpu")...)
	ns.delete("pod/whole-gpu")

	// If the spec of the first pod names the start before, the next pod shows that this start applies specs.
	checked := 1
	for range 2 {
		ns.apply("whole-gpu/pod.yaml")
		pod = ns.ready("whole-gpu")
		ns.sees("whole-gpu", "main", ns.grantedTo(pod, "gpu")...)
		checked = checks(ns.hooks(string(ns.claimOf(pod, "gpu").UID)))
		ns.delete("pod/whole-gpu")
	}
	assert.Zero(t, checked, "the container before has shown that the runtime applies specs")
}

// checks counts the hooks by which the plugin finds out whether specs are applied.
func checks(hooks []*specs.Hook) (n int) {
	for _, h := range hooks {
		if filepath.Base(h.Path) == "prism-hook" && h.Args[1] == "injected" {
			n++
		}
	}
	return n
}

// isInjected returns an error until condition Injected of a pod's claim has this status; with an empty status, until the condition is gone.
func (ns *namespace) isInjected(pod string, want metav1.ConditionStatus) error {
	claim := ns.claimOf(ns.pod(pod), "gpu")
	if claim.Status.Allocation == nil || len(claim.Status.Devices) == 0 {
		return errors.New("missing status of the claim")
	}
	status := metav1.ConditionStatus("")
	condition := meta.FindStatusCondition(claim.Status.Devices[0].Conditions, "Injected")
	if condition != nil {
		status = condition.Status
	}
	if status != want {
		return fmt.Errorf("condition Injected is %+v, not %q", condition, want)
	}
	return nil
}
