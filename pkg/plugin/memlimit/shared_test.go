package memlimit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestServer_TwoSharesOfOneClaim_LimitedToTheirSum in whatever order the runtime starts their hooks.
func TestServer_TwoSharesOfOneClaim_LimitedToTheirSum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second, elsewhere := w.record.Results[0], w.record.Results[0]
	second.ShareID, second.Consumed = "5", map[string]string{"memory": "2Gi"}
	elsewhere.ShareID, elsewhere.GPUUUID = "6", "GPU-d"
	w.record.Results = append(w.record.Results, second, elsewhere)
	w.record.CDI.Devices = append(w.record.CDI.Devices, "uid-second", "uid-elsewhere")
	w.serve(t)
	for _, device := range []string{share, "uid-second", share, "uid-elsewhere"} {
		require.NoError(t, w.container(t, cgroup, "uid", device, retry))
		assert.Equal(t, gpu.MemoryLimits{Hard: 6 << 30}, w.driver.limits[string(gpuA)+"/sys/fs/cgroup"+cgroup], device)
	}
	assert.Equal(t, gpu.MemoryLimits{Hard: 4 << 30}, w.driver.limits["GPU-d/sys/fs/cgroup"+cgroup])

	w.record.Results[len(w.record.Results)-2].Consumed["memory"] = "much"
	require.ErrorContains(t, w.container(t, cgroup, "uid", share, retry), `reading the allocated memory "much"`)
}

// TestServer_TwoClaimsOfOneContainer_Refused: both hooks, even if another process of the plugin answers the second one, or if the limits
// are equal. On different GPUs each gets its own limit.
func TestServer_TwoClaimsOfOneContainer_Refused(t *testing.T) {
	t.Parallel()
	for _, memory := range []string{"1Gi", "4Gi"} {
		w := newWorld(t)
		other := prepared()
		other.Claim = checkpoint.Claim{UID: "uid2", Namespace: "ns", Name: "other"}
		other.Results[0].Consumed = map[string]string{"memory": memory}
		w.server.Record = func(uid string) (*checkpoint.Record, error) {
			return map[string]*checkpoint.Record{"uid": w.record, "uid2": other}[uid], nil
		}
		w.hooks("uid", "uid2")
		w.serve(t)
		const use = "; use one claim with a request for each share, or a container for each claim"
		require.ErrorContains(t, w.container(t, cgroup, "uid", share, retry), "two claims limit the GPU memory of one container on GPU "+
			string(gpuA)+": ns/claim and ns/other"+use)
		w.serve(t) // the newest process owns the socket
		require.ErrorContains(t, w.container(t, cgroup, "uid2", share, retry), "ns/other and ns/claim"+use)
		assert.Empty(t, w.driver.limits)

		w.hooks("uid")
		require.NoError(t, w.container(t, cgroup, "uid", share, retry))
		w.hooks("uid2")
		require.NoError(t, w.container(t, "/kubepods/pod2/c1", "uid2", share, retry), "another container")
		other.Results[0].GPUUUID = "GPU-d"
		w.hooks("uid", "uid2")
		require.NoError(t, w.container(t, "/kubepods/pod3/c1", "uid", share, retry), "another GPU")
		require.NoError(t, w.container(t, "/kubepods/pod3/c1", "uid2", share, retry))
		assert.Len(t, w.driver.limits, 4)
		other.State = checkpoint.Releasing
		require.ErrorContains(t, w.container(t, cgroup, "uid", share, retry), "claim ns/other: it is not prepared")
	}
}

// TestServer_ThirdClaimOnTheGPU_Refused: each of the others is checked, not the first one alone.
func TestServer_ThirdClaimOnTheGPU_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	records := map[string]*checkpoint.Record{"uid": w.record}
	for uid, id := range map[string]gpu.UUID{"uid2": "GPU-d", "uid3": gpuA} {
		r := prepared()
		r.Claim = checkpoint.Claim{UID: uid, Namespace: "ns", Name: uid}
		r.Results[0].GPUUUID = id
		records[uid] = r
	}
	w.server.Record = func(uid string) (*checkpoint.Record, error) { return records[uid], nil }
	w.serve(t)
	for _, order := range [][]string{{"uid", "uid2", "uid3"}, {"uid2", "uid", "uid3"}, {"uid3", "uid2", "uid"}} {
		w.hooks(order...)
		require.ErrorContains(t, w.container(t, cgroup, "uid", share, retry), ": ns/claim and ns/uid3;", order)
		require.ErrorContains(t, w.container(t, cgroup, "uid3", share, retry), ": ns/uid3 and ns/claim;", order)
	}
	assert.Empty(t, w.driver.limits)
	require.NoError(t, w.container(t, cgroup, "uid2", share, retry), "it alone has that GPU")
}
