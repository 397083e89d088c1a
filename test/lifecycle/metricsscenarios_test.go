package lifecycle

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const exposedClaim, otherExposedClaim = "6f0c1d2e-0000-4000-8000-00000000000a", "6f0c1d2e-0000-4000-8000-00000000000b"

var metricsScenarios = []scenario{
	{
		name: "metrics exposed in containers", early: true,
		acts: []Act{
			prepares(exposedClaim, 0).exposing(), scrapes, prepares(exposedClaim, 0).exposing(), unprepares(exposedClaim),
			unprepares(exposedClaim),
		},
	},
	{
		name: "metrics exposed beside an effect",
		acts: []Act{
			prepares(exposedClaim, 0).with().exposing(), prepares(otherExposedClaim, 1).exposing(), scrapes, unprepares(exposedClaim), collectsGarbage,
			unprepares(otherExposedClaim),
		},
	},
	{
		name: "the directory for metrics cannot be made at first", refuse: map[string]int{"disk.MakeDir metrics": 1},
		acts: []Act{prepares(exposedClaim, 0).exposing().failing(), prepares(exposedClaim, 0).exposing(), unprepares(exposedClaim)},
	},
	{
		name: "the directory for metrics cannot be removed at first", refuse: map[string]int{"disk.RemoveDir metrics": 1},
		acts: []Act{prepares(exposedClaim, 0).exposing(), scrapes, unprepares(exposedClaim).failing(), unprepares(exposedClaim)},
	},
}

// scrapes runs a round of the exporter.
var scrapes = Act{Call: "scrape"}

// sitesOf counts the sites of a claim's Prepare, of a repeated one, and of its Unprepare.
func sitesOf(t *testing.T, act Act) (prepare, again, unprepare map[string]int) {
	t.Helper()
	m, err := NewMachine(t.TempDir(), "h100-80", 1)
	require.NoError(t, err)
	var mu sync.Mutex
	counts := map[string]int{}
	p, err := m.Start(t.Context(), Wiring{FaultPoint: func(site string, effect func() error) error {
		mu.Lock()
		counts[site]++
		mu.Unlock()
		return effect()
	}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, p.Close()) }()
	taken := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		before := counts
		counts = map[string]int{}
		return before
	}
	taken()
	require.NoError(t, m.act(t.Context(), p, act))
	prepare = taken()
	require.NoError(t, m.act(t.Context(), p, act))
	again = taken()
	require.NoError(t, m.act(t.Context(), p, unprepares(act.Claim)))
	return prepare, again, taken()
}

// TestMetrics_Options_NoMoreDurableWritesNorDriverCalls: options for metrics cost a directory.
func TestMetrics_Options_NoMoreDurableWritesNorDriverCalls(t *testing.T) {
	t.Parallel()
	prepare, again, unprepare := sitesOf(t, prepares(exposedClaim, 0))
	for _, calls := range []map[string]int{prepare, again, unprepare} {
		for site := range calls {
			assert.False(t, strings.HasSuffix(site, " metrics"), site)
		}
	}
	require.NotZero(t, prepare["disk.SyncDir records"])
	prepare["disk.MakeDir metrics"], again["disk.MakeDir metrics"], unprepare["disk.RemoveDir metrics"] = 1, 1, 1
	prepareWith, againWith, unprepareWith := sitesOf(t, prepares(exposedClaim, 0).exposing())
	assert.Equal(t, prepare, prepareWith)
	assert.Equal(t, again, againWith)
	assert.Equal(t, unprepare, unprepareWith)
}
