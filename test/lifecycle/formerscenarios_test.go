package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// formerRecords rewrites all records in the form before extensions.
var formerRecords = Act{Call: "formerRecords"}

// formerScenarios are upgrades from that version: its records lead to the same answer and are undone alike, no matter at which point the
// first write stops.
var formerScenarios = []scenario{
	{
		name: "records of before extensions: profile and metrics", profiled: true, early: true,
		acts: []Act{
			prepares(profiledClaim, 0).with().profiling().exposing(), formerRecords, prepares(profiledClaim, 0).with().profiling().exposing(), scrapes,
			unprepares(profiledClaim), storesReports,
		},
	},
	{
		name: "records of before extensions: an effect stays at first", refuse: map[string]int{"step.Undo persistence": 1},
		acts: []Act{prepares(exposedClaim, 0).with().exposing(), formerRecords, unprepares(exposedClaim).failing(), unprepares(exposedClaim)},
	},
}

// TestFormerRecords_Rewritten_SchemaOne: the scenarios begin with records in that version's form.
func TestFormerRecords_Rewritten_SchemaOne(t *testing.T) {
	t.Parallel()
	m, err := NewMachine(t.TempDir(), "h100-80", 1)
	require.NoError(t, err)
	p, err := m.Start(t.Context(), Wiring{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, p.Close()) }()
	require.NoError(t, m.act(t.Context(), p, prepares(exposedClaim, 0).exposing()))
	read := func() string {
		text, err := os.ReadFile(filepath.Join(m.StateDir, "claims", exposedClaim+".json"))
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, read(), `{"schema":2,`)
	require.NoError(t, m.act(t.Context(), p, formerRecords))
	assert.Contains(t, read(), `{"schema":1,`)
	assert.Contains(t, read(), `"metrics":{"exposeInContainer":true`)
	assert.NotContains(t, read(), "extensions")
	require.NoError(t, m.act(t.Context(), p, unprepares(exposedClaim)))
}
