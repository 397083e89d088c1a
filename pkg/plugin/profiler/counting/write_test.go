package counting

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// TestEnsure_CountedClaim_OrderWritten: readable by root only, and no sync makes the pod wait.
func TestEnsure_CountedClaim_OrderWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Start = new(v1alpha1.StartManual)
	w.config.Output.FileName = new("{POD}_{UID}")
	require.NoError(t, w.Ensure(counted(t, uidA)))
	assert.Equal(t, &counters.Order{
		Claim: uidA, Namespace: "team", Name: "train", Node: "n0",
		GPUs:        []counters.GPU{{UUID: gpu1, PCIAddress: "0000:01:00.0"}, {UUID: gpu2, PCIAddress: "0000:02:00.0"}},
		FrequencyHz: 10000, MetricSet: "gh100", Manual: true, Seconds: 600, File: "{POD}_{UID}", StartSeconds: 10, ReportSeconds: 60,
	}, w.ordered(uidA))
	info, err := os.Stat(w.path(uidA, counters.OrderFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	names, err := w.files.List(w.path(uidA, ""))
	require.NoError(t, err)
	assert.Equal(t, []string{counters.OrderFile}, names)
	assert.False(t, w.Makes(w.path(uidA, counters.OrderFile)), "containers get nothing of it")
}

// TestEnsure_Repeated_SameOrderStays: the collector ends the recording of an order that changes, so neither another Prepare nor another timeout
// changes it.
func TestEnsure_Repeated_SameOrderStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.Ensure(counted(t, uidA)))
	path := w.path(uidA, counters.OrderFile)
	first, err := os.Stat(path)
	require.NoError(t, err)
	again := func(same bool) {
		t.Helper()
		require.NoError(t, w.Ensure(counted(t, uidA)))
		now, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, same, os.SameFile(first, now))
	}
	again(true)
	w.options.StartTimeout, w.options.ReportTimeout = time.Minute, time.Hour
	again(true)
	assert.EqualValues(t, 10, w.ordered(uidA).StartSeconds)
	w.config.Start = new(v1alpha1.StartManual)
	again(false)
	assert.True(t, w.ordered(uidA).Manual)
	require.NoError(t, os.WriteFile(path, nil, 0o600)) // after a power cut
	require.NoError(t, w.Ensure(counted(t, uidA)))
	assert.NotNil(t, w.ordered(uidA))
}

// TestEnsure_ClaimPreparedAgain_FormerStateRemoved: a recording that ended for the claim's former pod must not count as the present one's; a
// repeated Prepare of one pod keeps it.
func TestEnsure_ClaimPreparedAgain_FormerStateRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := counted(t, uidA)
	require.NoError(t, w.Ensure(r))
	w.state(uidA, counters.Ended, "")
	require.NoError(t, w.Ensure(r))
	assert.FileExists(t, w.path(uidA, counters.StateFile))
	require.NoError(t, w.RemoveFiles(uidA))
	assert.FileExists(t, w.path(uidA, counters.StateFile), "the store removes the folder")
	require.NoError(t, w.Ensure(r))
	assert.NoFileExists(t, w.path(uidA, counters.StateFile))
}

// TestEnsure_CollectorOff_NoOrder: a claim of before is prepared again, for example after a reboot.
func TestEnsure_CollectorOff_NoOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.Enabled, w.options.Config = false, nil
	require.NoError(t, w.Ensure(counted(t, uidA)))
	assert.Nil(t, w.ordered(uidA))
}

// TestEnsure_UnusableRecord_Error: the kubelet retries a claim without its order.
func TestEnsure_UnusableRecord_Error(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world, r *checkpoint.Record)
		want   string
	}{
		"no data":   {func(_ *world, r *checkpoint.Record) { delete(r.Extensions, claim.KindCounters) }, "the record contains no GPUs"},
		"damaged":   {func(_ *world, r *checkpoint.Record) { r.Extensions[claim.KindCounters] = []byte("[]") }, "reading the performance counters in the record of claim team/train"},
		"no GPU":    {func(_ *world, r *checkpoint.Record) { r.Extensions[claim.KindCounters] = []byte("{}") }, "gpus must have 1 to 64 items"},
		"no UID":    {func(_ *world, r *checkpoint.Record) { r.Claim.UID = "../" + uidB }, "claim must be a UID"},
		"no folder": {func(w *world, _ *checkpoint.Record) { w.options.Dir = filepath.Join(w.options.Dir, "absent") }, "ordering the performance counters of claim team/train"},
		"no profile": {func(w *world, _ *checkpoint.Record) {
			w.options.Config = func(*checkpoint.Record) (*v1alpha1.ProfilerConfig, error) { return nil, errors.New("no profile") }
		}, "no profile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := counted(t, uidA)
			c.change(w, r)
			require.ErrorContains(t, w.Ensure(r), c.want)
			assert.Nil(t, w.ordered(uidB))
		})
	}
}

// TestRemoveFiles_Order_RemovedAlone: also an unfinished one; the reports stay, and no name leads out of the directory.
func TestRemoveFiles_Order_RemovedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.Ensure(counted(t, uidA)))
	require.NoError(t, w.Ensure(counted(t, uidB)))
	require.NoError(t, os.WriteFile(w.path(uidA, "order.tmp"), nil, 0o600))
	require.NoError(t, os.Mkdir(w.path(uidA, counters.InboxDir), 0o700))
	for range 2 {
		require.NoError(t, w.RemoveFiles(uidA))
	}
	names, err := w.files.List(w.path(uidA, ""))
	require.NoError(t, err)
	assert.Equal(t, []string{counters.InboxDir}, names)
	assert.NotNil(t, w.ordered(uidB))
	w.options.Dir = w.path(uidB, "")
	for _, name := range []string{".", "", "..", "../" + uidB, uidA + "/../."} {
		require.NoError(t, w.RemoveFiles(name))
	}
	assert.FileExists(t, filepath.Join(w.options.Dir, counters.OrderFile))
	assert.NoError(t, w.RemoveFiles("6f0c1d2e-0000-4000-8000-000000000000"), "a claim without a folder")
}

// TestClaims_Orders_Listed: the garbage collection removes the ones without a record, also unfinished ones; it leaves folders whose reports
// are being stored.
func TestClaims_Orders_Listed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := func() []string {
		t.Helper()
		uids, err := w.Claims()
		require.NoError(t, err)
		return uids
	}
	assert.Empty(t, list())
	require.NoError(t, w.Ensure(counted(t, uidA)))
	require.NoError(t, os.WriteFile(w.path(uidB, "order.tmp"), nil, 0o600))
	w.uses()
	require.NoError(t, os.MkdirAll(w.path("other", counters.OrderFile), 0o700))
	assert.Equal(t, []string{uidA, uidB}, list())
	for _, uid := range list() {
		w.Released(uid)
		require.NoError(t, w.RemoveFiles(uid))
	}
	assert.Empty(t, list())
	w.options.Enabled = false
	require.NoError(t, os.WriteFile(w.path(uidB, counters.OrderFile), nil, 0o600))
	assert.Equal(t, []string{uidB}, list(), "an order from before the collector was turned off")
	w.options.Dir = filepath.Join(w.options.Dir, "absent")
	assert.Empty(t, list())
}
