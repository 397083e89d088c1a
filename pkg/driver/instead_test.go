package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twice selects the first GPU in two entries, which is refused, and offers the other one in turns.
const twice = `[{select: {indices: [0]}, modes: [mig]}, {select: {products: ["*H100"]}}, {modes: [timeslice], timeSlice: {replicas: 2}}]`

const twiceSaid = "Warning NodeConfigInvalid Configure: GPU 0 stays as it was offered, whole if it is new; all else is in force: " +
	"NodeConfig: gpus[1].select: selects GPU 0 (NVIDIA H100, " + string(firstUUID) + "), as does gpus[0]; a GPU has one entry: narrow one of them"

// others lists what the second GPU is offered as.
func (d *desk) others(t *testing.T) (names []string) {
	t.Helper()
	node, layout, err := d.Now()
	require.NoError(t, err)
	for _, device := range layout.Of(&node.GPUs[1]).Devices(&node.GPUs[1]) {
		names = append(names, string(device.Type()))
	}
	return names
}

// TestARefusedGPUKeepsWhatItHad while the others are offered as the configuration says, over restarts too, until it is right again.
func TestARefusedGPUKeepsWhatItHad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, turns)
		stop := d.runs(t)
		after(2 * rereadFirst)
		had := []string{ownPool, first, first + "-timeslice"}
		assert.Equal(t, had, d.offered(t))
		d.entries = twice
		d.Reload()
		after(time.Minute)
		assert.Equal(t, had, d.offered(t))
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{twiceSaid}, d.events())
		assert.Equal(t, []string{"NodeConfigInvalid"}, d.Problems())
		wanted, err := d.Intervals()
		require.NoError(t, err)
		assert.Contains(t, wanted, firstUUID)
		stop()

		d.restart(t)
		require.True(t, d.Load(t.Context()))
		d.Probe(t.Context())
		stop = d.runs(t)
		after(time.Minute)
		assert.Equal(t, had, d.offered(t))
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{twiceSaid}, d.events())
		d.entries = onlySlices
		d.Reload()
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, []string{good}, d.events())
		stop()
	})
}

// TestARefusedGPUGoesOnToWhatWasGood: the last good configuration is not taken back because it is not in force yet.
func TestARefusedGPUGoesOnToWhatWasGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		d.entries = twice
		d.Reload()
		after(2 * debounce)
		assert.Contains(t, d.leaving(t), wholeOfFirst)
		after(time.Minute)
		assert.Equal(t, []string{ownPool, oneSlice, big}, d.offered(t))
		assert.Equal(t, []string{twiceSaid}, d.events(), "once")
	})
}

// TestARefusedGPUThatIsNewIsWhole, and what is said of it does not change when it is no longer new.
func TestARefusedGPUThatIsNewIsWhole(t *testing.T) {
	t.Parallel()
	d := opened(t, twice)
	assert.Equal(t, []string{"n0", first}, d.offered(t))
	d.seen = nil
	assert.Equal(t, []string{"n0", first}, d.offered(t))
	assert.Equal(t, []string{twiceSaid}, d.events())
}

func TestWhatIsSaidOfAConfigurationThatIsPartlyWrong(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string]string{
		`[{select: {indices: [1]}, modes: [mps], mps: {replicas: 2}}]`: "GPU 1 is without any device; all else is in force: ",
		`[{modes: [mps], mps: {replicas: 2}}]`:                         "GPUs 0, 1 are without any device; all else is in force: ",
		`[{modes: [whole, mps], mps: {replicas: 2}}]`:                  "All else is in force: ",
		`[{select: {indices: [0, 1]}, modes: [mig]}, {select: {products: ["*H100"]}}]`: "GPUs 0, 1 stay as they were offered, whole if they are new; " +
			"all else is in force: ",
		`[{select: {indices: [0]}, modes: [mps], mps: {replicas: 2}}, {modes: [mig]}]`: "GPU 1 stays as it was offered, whole if it is new; " +
			"GPU 0 is without any device; all else is in force: ",
		`[{modes: [timeslice, mps], timeSlice: {replicas: 2}, mps: {replicas: 2}}]`:             "All else is in force: ",
		`[{select: {indices: [0]}, modes: [whole, mig], mig: {replicas: {1g.10gb: 2}}}]`:        "All else is in force: ",
		`[{select: {indices: [0], uuids: [` + string(firstUUID[:36]) + `ffff]}, modes: [mig]}]`: "All else is in force: ",
		`[{select: {indices: [1]}, modes: [timeslice], timeSlice: {replicas: 1}}, {select: {indices: [0]}, modes: [mig]}]`: "GPU 1 stays as it was " +
			"offered, whole if it is new; all else is in force: ",
	} {
		d := opened(t, entries)
		_ = d.offered(t)
		notes := d.events()
		require.Len(t, notes, 1, entries)
		assert.Contains(t, notes[0], "Warning NodeConfigInvalid Configure: "+want)
	}
}
