package memlimit

import (
	"errors"
	"fmt"
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

// TestServer_TwoClaimsOfOneContainer_SecondRefused: the limit of the first one stays.
func TestServer_TwoClaimsOfOneContainer_SecondRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := prepared()
	other.Claim = checkpoint.Claim{UID: "uid2", Namespace: "ns", Name: "other"}
	other.Results[0].Consumed = map[string]string{"memory": "1Gi"}
	w.server.Record = func(uid string) (*checkpoint.Record, error) {
		return map[string]*checkpoint.Record{"uid": w.record, "uid2": other}[uid], nil
	}
	w.serve(t)
	require.NoError(t, w.container(t, cgroup, "uid", share, retry))
	require.ErrorContains(t, w.container(t, cgroup, "uid2", share, retry), "two claims limit the GPU memory of one container on GPU "+
		string(gpuA)+": ns/claim and ns/other; use one claim with a request for each share, or a container for each claim")
	assert.Equal(t, map[string]gpu.MemoryLimits{string(gpuA) + "/sys/fs/cgroup" + cgroup: {Hard: 4 << 30}}, w.driver.limits)
	require.NoError(t, w.container(t, cgroup, "uid", share, retry), "the first claim again")
	require.NoError(t, w.container(t, "/kubepods/pod2/c1", "uid2", share, retry), "another container")
}

// TestOwners_CgroupsGone_Removed: what a process keeps does not grow with the containers that have exited.
func TestOwners_CgroupsGone_Removed(t *testing.T) {
	t.Parallel()
	o := owners{all: map[limited]checkpoint.Claim{}}
	for i := range 100 {
		now := fmt.Sprint(i)
		require.NoError(t, o.claim(limited{gpuA, now}, checkpoint.Claim{UID: now}, func(path string) (string, error) {
			switch path {
			case now:
				return path, nil
			case "0":
				return "", errors.New("unknown")
			}
			return "", gpu.ErrNotFound
		}))
	}
	assert.Len(t, o.all, 2, "one that may be there, and the present one")
}
