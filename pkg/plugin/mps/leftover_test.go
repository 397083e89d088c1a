package mps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestFind_FileOfEarlierBoot_Collected: its mode is gone, and nothing is set.
func TestFind_FileOfEarlierBoot_Collected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	earlier := NewStore(disk.OS{}, w.dir, "boot-0")
	require.NoError(t, earlier.put(daemonA, saved{GPU: uuidA, Device: string(uuidA), Mode: gpu.ComputeProhibited}))
	step := w.step()
	assert.True(t, step.Store.Empty(), "nothing has to be watched for it")
	step.Needed = func() bool { return false }
	found, err := step.Find(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, uuidA, found[0].Target)
	require.NoError(t, step.Undo(t.Context(), found[0]))
	assert.Empty(t, w.files(t))
	assert.Equal(t, []string{"stop"}, w.since())
}

// TestStep_DaemonDied_ProhibitedUntilItRuns: a program that starts meanwhile does not use the device without MPS.
func TestStep_DaemonDied_ProhibitedUntilItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := w.step()
	_, err := step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	w.daemons[daemonA].State = gpu.MPSDead
	step.Watcher.set(state{current: true, daemons: []gpu.MPSDaemon{*w.daemons[daemonA]}})
	w.since()
	_, err = step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, []string{"Prohibited", "start", "Exclusive_Process", "ensure"}, w.since())

	w.since()
	_, err = step.Do(t.Context(), use(0, 0))
	require.NoError(t, err)
	assert.Equal(t, []string{"list", "ensure"}, w.since(), "it runs again, which the service has not reported yet: its clients keep the device")
}
