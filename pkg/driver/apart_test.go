package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestSharesAreForgotten: where the scheduler does not count shares, a GPU that has some is offered in one way, and no other GPU is
// the worse for it.
func TestSharesAreForgotten(t *testing.T) {
	t.Parallel()
	const turn = first + "-timeslice"
	for name, c := range map[string]struct {
		entries string
		want    []string
		told    int
	}{
		"whole and in turns": {turns, []string{ownPool, first}, 1},
		"in turns and slices": {`[{select: {indices: [0]}, modes: [timeslice, mig], timeSlice: {replicas: 3}}]`,
			[]string{ownPool, turn}, 1},
		"in turns":         {`[{select: {indices: [0]}, modes: [timeslice], timeSlice: {replicas: 3}}]`, []string{ownPool, turn}, 0},
		"whole and slices": {both, []string{ownPool, first, oneSlice, big}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, c.entries)
			d.forgetful = true
			require.True(t, d.Load(t.Context()))
			d.Probe(t.Context())
			assert.Equal(t, c.want, d.offered(t))
			assert.True(t, d.limit(gpu.Offer{Static: true, MIGReplicas: map[string]int{"1g.10gb": 2}}).Disjoint, "slices for several claims too")
			told := d.events()
			require.Len(t, told, c.told)
			for _, note := range told {
				assert.Contains(t, note, "Warning SharedCountersUnsupported Configure: The scheduler of a Kubernetes before 1.36.2 forgets")
			}
		})
	}
}

// TestSharesWaitForTheAnswer: who has counters and no answer about shares offers nothing in parts.
func TestSharesWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, turns)
	d.unread = errLater
	require.True(t, d.Load(t.Context()))
	d.Probe(t.Context())
	_, _, err := d.Now()
	require.ErrorIs(t, err, errCounters)
	d.unread = nil
	d.Probe(t.Context())
	assert.Equal(t, []string{ownPool, first, first + "-timeslice"}, d.offered(t))
}

// TestAShareInUseIsForgotten: nothing that the share excludes is offered beside it, whatever was before.
func TestAShareInUseIsForgotten(t *testing.T) {
	t.Parallel()
	d := newDesk(t, turns)
	d.forgetful = true
	d.records = append(d.records, holdsShare())
	require.True(t, d.Load(t.Context()))
	d.Probe(t.Context())
	assert.Equal(t, []string{ownPool}, d.offered(t))
}
