package layout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestCapabilities_SharesNotCounted_OneMode: if the scheduler does not count shares, a GPU with shares is advertised in one mode, and no
// other GPU is affected.
func TestCapabilities_SharesNotCounted_OneMode(t *testing.T) {
	t.Parallel()
	const share = first + "-timeslice"
	for name, c := range map[string]struct {
		entries string
		want    []string
		events  int
	}{
		"whole and shares": {shared, []string{ownPool, first}, 1},
		"shares and MIG devices": {`[{select: {indices: [0]}, modes: [timeslice, mig], timeSlice: {replicas: 3}}]`,
			[]string{ownPool, share}, 1},
		"shares":               {`[{select: {indices: [0]}, modes: [timeslice], timeSlice: {replicas: 3}}]`, []string{ownPool, share}, 0},
		"whole and MPS shares": {`[{select: {indices: [0]}, modes: [whole, mps], mps: {replicas: 3}}]`, []string{ownPool, first}, 1},
		"MPS shares and MIG devices": {`[{select: {indices: [0]}, modes: [mps, mig], mps: {replicas: 3}}]`,
			[]string{ownPool, first + "-mps"}, 1},
		"shares of both kinds": {`[{select: {indices: [0]}, modes: [mps, timeslice], timeSlice: {replicas: 3}, mps: {replicas: 1}}]`,
			[]string{ownPool, share}, 1},
		"MPS shares":            {`[{select: {indices: [0]}, modes: [mps], mps: {replicas: 3}}]`, []string{ownPool, first + "-mps"}, 0},
		"whole and MIG devices": {both, []string{ownPool, first, small6, big}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, c.entries)
			d.uncounted = true
			require.True(t, d.load(t))
			d.probe(t)
			assert.Equal(t, c.want, d.advertised(t))
			assert.True(t, d.worker.state.capabilities.limit(gpu.Modes{Static: true, MIGReplicas: map[string]int{"1g.10gb": 2}}).Disjoint, "MIG devices for several claims too")
			notes := d.events()
			require.Len(t, notes, c.events)
			for _, note := range notes {
				assert.Contains(t, note, "Warning SharedCountersUnsupported Configure: The scheduler of a Kubernetes before 1.36.2 does not count")
			}
		})
	}
}

// TestCapabilities_SharesUnknown_NotPartitioned although counters are stored.
func TestCapabilities_SharesUnknown_NotPartitioned(t *testing.T) {
	t.Parallel()
	d := newFixture(t, shared)
	d.sharesError = errLater
	require.True(t, d.load(t))
	d.probe(t)
	require.ErrorIs(t, d.now().Err, errCounters)
	d.sharesError = nil
	d.probe(t)
	assert.Equal(t, []string{ownPool, first, first + "-timeslice"}, d.advertised(t))
}

// TestCapabilities_SharesNotCountedAndOneInUse_NothingBesideIt, whatever was before.
func TestCapabilities_SharesNotCountedAndOneInUse_NothingBesideIt(t *testing.T) {
	t.Parallel()
	d := newFixture(t, shared)
	d.uncounted = true
	d.records = append(d.records, holdsShare())
	require.True(t, d.load(t))
	d.probe(t)
	assert.Equal(t, []string{ownPool}, d.advertised(t))
}
