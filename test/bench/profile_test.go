package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/pkg/config"
)

// aProfile requests a profile of the claim's processes.
var aProfile = resourceapi.DeviceAllocationConfiguration{
	Source: resourceapi.AllocationConfigSourceClaim,
	DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
		Driver: testDriver, Parameters: runtime.RawExtension{Raw: []byte(profilerConfig)},
	}},
}

// profileClaim returns the claim for one GPU whose processes are profiled.
func profileClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("profile-%d", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}
}

// A profile adds files that a repeated Prepare writes again: its plan, two files, and the index of its reports. The plugin syncs none of
// them, runs no program, and reads nothing else from the API server or the driver.
func TestPrepare_Profile_CostIsExact(t *testing.T) {
	n := newNodeWith(t, wholeOnly, func(cfg *config.Plugin) {
		cfg.Profiler.Enabled = true
		require.NoError(t, installed(filepath.Join(cfg.ToolsDir(), "2022.4.2-bench")))
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n.both(ctx, reference(0)) // a process reads all records when it locks a GPU for the first time
	n.both(ctx, profileClaim(0))
	for i := range 3 {
		without := n.both(ctx, reference(0))
		n.disk.since()
		got := n.both(ctx, profileClaim(i*8))
		assert.Empty(t, cmp.Diff(without, got, later))
		assert.NoError(t, problems(ProfileLimits.rows(1, got)...))
	}
	n.disk.since()
	require.NoError(t, n.plugin.Prepare(ctx, reference(0)))
	without, _ := n.disk.since()
	require.NoError(t, n.plugin.Unprepare(ctx, reference(0)))
	n.disk.since()
	require.NoError(t, n.plugin.Prepare(ctx, profileClaim(800)))
	with, _ := n.disk.since()
	assert.Equal(t, without.plus(Files{Opened: 3, Changed: 4}), with, "the first time")
	require.NoError(t, n.plugin.Prepare(ctx, profileClaim(800)))
	again, _ := n.disk.since()
	assert.Zero(t, again.Changed, "preparing again")
	require.NoError(t, n.plugin.Unprepare(ctx, profileClaim(800)))
}
