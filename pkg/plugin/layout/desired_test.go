package layout

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// twice selects the first GPU in two entries, which is refused, and has time-sliced shares of the other one.
const twice = `[{select: {indices: [0]}, modes: [mig]}, {select: {products: ["*H100"]}}, {modes: [timeslice], timeSlice: {replicas: 2}}]`

const twiceNote = "Warning NodeConfigInvalid Configure: GPU 0 stays as it was advertised, whole if it is new; all else is applied: " +
	"NodeConfig: gpus[1].select: selects GPU 0 (NVIDIA H100, " + string(firstUUID) + "), as does gpus[0]; a GPU has one entry: narrow one of them"

// others lists the devices that the second GPU is advertised as.
func (d *fixture) others(t *testing.T) (names []string) {
	t.Helper()
	s := d.now()
	require.NoError(t, s.Err)
	for _, device := range s.Layout.Of(&s.Node.GPUs[1]).Devices(&s.Node.GPUs[1]) {
		names = append(names, string(device.Type()))
	}
	return names
}

// TestRefusedGPU_Restarts_LayoutStays until its configuration is valid again, over restarts too, while the others are advertised as
// configured.
func TestRefusedGPU_Restarts_LayoutStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, shared)
		stop := d.runs(t)
		after(2 * retryFirst)
		had := []string{ownPool, first, first + "-timeslice"}
		assert.Equal(t, had, d.advertised(t))
		d.entries = twice
		d.Reload()
		after(time.Minute)
		assert.Equal(t, had, d.advertised(t))
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{twiceNote}, d.events())
		assert.Equal(t, []string{"NodeConfigInvalid"}, d.now().Status.Problems)
		wanted, err := d.now().Intervals()
		require.NoError(t, err)
		assert.Contains(t, wanted, firstUUID)
		stop()

		d.restart(t)
		require.True(t, d.load(t))
		d.probe(t)
		stop = d.runs(t)
		after(time.Minute)
		assert.Equal(t, had, d.advertised(t))
		assert.Equal(t, []string{"timeslice"}, d.others(t))
		assert.Equal(t, []string{twiceNote}, d.events())
		d.entries = onlyMIG
		d.Reload()
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []string{valid}, d.events())
		stop()
	})
}

// TestRefusedGPU_Changing_GoesOnToTheLastValidLayout, which is not taken back because it is not applied yet.
func TestRefusedGPU_Changing_GoesOnToTheLastValidLayout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, stop := turned(t)
		defer stop()
		d.entries = twice
		d.Reload()
		after(changeWait)
		assert.Contains(t, d.leaving(t), wholeOfFirst)
		after(time.Minute)
		assert.Equal(t, []string{ownPool, small6, big}, d.advertised(t))
		assert.Equal(t, []string{twiceNote}, d.events(), "once")
	})
}

// TestRefusedGPU_New_Whole, and its report does not change when it is no longer new.
func TestRefusedGPU_New_Whole(t *testing.T) {
	t.Parallel()
	d := opened(t, twice)
	assert.Equal(t, []string{"n0", first}, d.advertised(t))
	d.renew()
	assert.Equal(t, []string{"n0", first}, d.advertised(t))
	assert.Equal(t, []string{twiceNote}, d.events())
}

func TestPartly_InvalidEntries_SaysWhatStays(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string]string{
		`[{select: {indices: [1]}, modes: [mps], mps: {replicas: 49}}]`: "GPU 1 stays as it was advertised, whole if it is new; all else is applied: ",
		`[{modes: [whole, mps], mps: {replicas: 49}}]`:                  "GPUs 0, 1 stay as they were advertised, whole if they are new; all else is applied: ",
		`[{select: {indices: [0, 1]}, modes: [mig]}, {select: {products: ["*H100"]}}]`: "GPUs 0, 1 stay as they were advertised, whole if they are new; " +
			"all else is applied: ",
		`[{select: {indices: [0]}, modes: [whole, mig], mig: {replicas: {1g.10gb: 2}}}]`:        "All else is applied: ",
		`[{select: {indices: [0], uuids: [` + string(firstUUID[:36]) + `ffff]}, modes: [mig]}]`: "All else is applied: ",
		`[{select: {indices: [1]}, modes: [timeslice], timeSlice: {replicas: 1}}, {select: {indices: [0]}, modes: [mig]}]`: "GPU 1 stays as it was " +
			"advertised, whole if it is new; all else is applied: ",
	} {
		d := opened(t, entries)
		_ = d.advertised(t)
		notes := d.events()
		require.Len(t, notes, 1, entries)
		assert.Contains(t, notes[0], "Warning NodeConfigInvalid Configure: "+want)
	}
}

// TestPartly_WholeGPUInMIGMode_WithoutDevice: the MIG mode of the product changes only with a reset.
func TestPartly_WholeGPUInMIGMode_WithoutDevice(t *testing.T) {
	t.Parallel()
	d := newFixture(t, `[{select: {indices: [0]}}, {modes: [mig]}]`)
	d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs[0].MIG.Mode = gpu.MIGMode{NeedsReset: true, Enabled: true} })
	require.True(t, d.load(t))
	_ = d.now()
	assert.Contains(t, d.events()[0], "GPU 1 stays as it was advertised, whole if it is new; GPU 0 is without any device; all else is applied: ")
}

// TestUnmatched_ConfigForManyNodes_MentionedOnce, as no problem, and again when it changes.
func TestUnmatched_ConfigForManyNodes_MentionedOnce(t *testing.T) {
	t.Parallel()
	const has = "Normal NodeConfigUnmatched Configure: Parts of the node's configuration match nothing on this node: NodeConfig: gpus[0].select.products: " +
		"no matching device with product name: NVIDIA-B200; this node has: NVIDIA H100"
	d := newFixture(t, `[{select: {products: [NVIDIA-B200]}, modes: [mig]}]`)
	d.machine.GPUs = d.machine.GPUs[:1]
	d.restart(t)
	require.True(t, d.load(t))
	_ = d.advertised(t)
	d.renew()
	assert.Equal(t, []string{has}, d.events())
	assert.Empty(t, d.now().Status.Problems)
	d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs[0].Product.Name = "NVIDIA B200" })
	d.renew()
	assert.Empty(t, d.events())
	d.machine.Change(t, d.options.Inventory, func() { d.machine.GPUs[0].Product.Name = "NVIDIA H100" })
	d.renew()
	assert.Equal(t, []string{has}, d.events(), "again")
}
