package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsOptions_Claim_DescribedInStatus: kubectl describe shows the options in effect.
func TestMetricsOptions_Claim_DescribedInStatus(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("metrics-labels/pod.yaml")
	pod := ns.ready("metrics-labels")
	ns.sees("metrics-labels", "main", ns.grantedTo(pod, "gpu")...)
	claim := ns.claimOf(pod, "gpu")
	require.Len(t, claim.Status.Devices, 1)
	assert.Contains(t, string(claim.Status.Devices[0].Data.Raw), `"sets":["Basic","Memory","Power"]`)
	description := ns.do("describe", "resourceclaim", claim.Name)
	for _, fact := range []string{"GPUMetricsReady", "Configured", "Interval", "2s", "GPM"} {
		assert.Contains(t, description, fact)
	}
	ns.delete("pod", "metrics-labels")
	ns.checkNothingKept()
}

// TestMetricsOptions_ClassAndClaim_Merged: fields and labels of the claim take precedence.
func TestMetricsOptions_ClassAndClaim_Merged(t *testing.T) {
	ns := inParallel(t, 1)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "deviceclass", "sampled.gpu.example.com")...) })
	ns.apply("metrics-class/pod.yaml")
	pod := ns.ready("metrics-class")
	ns.grantedTo(pod, "gpu") // the status is written after the pod has started
	claim := ns.claimOf(pod, "gpu")
	require.Len(t, claim.Status.Devices, 1)
	data := string(claim.Status.Devices[0].Data.Raw)
	assert.Contains(t, data, `"interval":"2s"`)
	assert.Contains(t, data, `"sets":["Basic","Memory","Clocks"]`)
}

// TestMetricsInContainer_OwnMetrics_ReadOnly: the container reads the metrics of its own GPU, and cannot write there.
func TestMetricsInContainer_OwnMetrics_ReadOnly(t *testing.T) {
	ns := inParallel(t, 1)
	ns.apply("metrics-in-container/pod.yaml")
	pod := ns.ready("metrics-in-container")
	claim := ns.claimOf(pod, "gpu")
	dir := "/run/prism/metrics/" + string(claim.UID)
	eventually(t, startLimit, func() error {
		_, err := ns.try("exec", "metrics-in-container", "--", "test", "-s", dir+"/gpu.prom")
		return err
	})
	page := ns.do("exec", "metrics-in-container", "--", "cat", dir+"/gpu.prom")
	assert.Contains(t, page, ns.grantedTo(pod, "gpu")[0].UUID)
	_, err := ns.try("exec", "metrics-in-container", "--", "touch", dir+"/own")
	require.ErrorContains(t, err, "Read-only file system")
	ns.delete("pod", "metrics-in-container")
	ns.checkNothingKept()
}
