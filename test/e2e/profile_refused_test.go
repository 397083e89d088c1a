package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProfile_NoTools_RefusedBySentence: while the chart installs no version of the profiler, claims with a ProfilerConfig, or whose class
// has one, are refused, and the message names the value of the chart.
func TestProfile_NoTools_RefusedBySentence(t *testing.T) {
	// Tests in later files install a version.
	ns := exclusive(t)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "profiled.gpu.example.com")...) })
	ns.apply("profile-claim/pod.yaml")
	ns.apply("profile-class/pod.yaml")
	for _, pod := range []string{"profile-claim", "profile-class"} {
		ns.isRefusedWith(pod, "gpu", "ProfilerConfig requires the profiler", "the chart's value profiler.tools is empty", "(will be retried)")
	}
}

// TestProfile_SamplePolicy_ByLabelOfNamespace: the sample policy refuses a ProfilerConfig if the namespace lacks the label, and the sample
// quota keeps a namespace from a class.
func TestProfile_SamplePolicy_ByLabelOfNamespace(t *testing.T) {
	ns := exclusive(t)
	allowed := newNamespace(t, ns.cluster)
	t.Cleanup(func() {
		ns.must(t, ns.kubectl("delete", "--filename", ns.spec("profile-policy/policy.yaml"))...)
	})
	allowed.do("label", "namespace", allowed.name, "profiling.example.com/allowed=true")
	ns.apply("profile-policy/policy.yaml")
	ns.apply("profile-policy/quota.yaml")
	profiled := func(ns *namespace) error {
		_, err := ns.try("create", "--dry-run=server", "--filename", ns.spec("profile-claim/pod.yaml"))
		return err
	}
	eventually(t, startLimit, func() error { // the API server reads policies from time to time
		if err := profiled(ns); err == nil || !strings.Contains(err.Error(), "may not have processes profiled") {
			return fmt.Errorf("the policy is not in effect: %w", err)
		}
		return nil
	})
	require.NoError(t, profiled(allowed))
	const ofClass = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: by-class}, spec: {devices: {requests: [
		{name: gpu, exactly: {deviceClassName: profiled.gpu.example.com}}]}}}`
	eventually(t, startLimit, func() error {
		_, err := ns.run(ofClass, ns.kubectl("--namespace", ns.name, "create", "--dry-run=server", "--filename=-")...)
		if err == nil || !strings.Contains(err.Error(), "exceeded quota: no-profiled-class") {
			return fmt.Errorf("the quota is not in effect: %w", err)
		}
		return nil
	})
	_, err := allowed.run(ofClass, ns.kubectl("--namespace", allowed.name, "create", "--dry-run=server", "--filename=-")...)
	require.NoError(t, err)
	_, err = ns.try("create", "--dry-run=server", "--filename", ns.spec("whole-gpu/pod.yaml"))
	require.NoError(t, err, "claims without a ProfilerConfig are not concerned")
}
