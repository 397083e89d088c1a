package e2e

import "testing"

// TestProfile_NoTools_RefusedBySentence: as long as the chart installs no version of the profiler, claims with a ProfilerConfig, their own or
// their class's, are refused, and the sentence names the value.
func TestProfile_NoTools_RefusedBySentence(t *testing.T) {
	// Tests of files that come later have a version installed.
	ns := exclusive(t)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "profiled.gpu.example.com")...) })
	ns.apply("profile-claim/pod.yaml")
	ns.apply("profile-class/pod.yaml")
	for _, pod := range []string{"profile-claim", "profile-class"} {
		ns.isRefused(pod, "gpu", "ProfilerConfig requires the profiler", "the chart's value profiler.tools is empty")
	}
}
