package profiler

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	profiles "github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/plan"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestArm_Claim_SelectsProcessesUntilDisarmed: the file is the one of a claim that is always armed, and neither another Prepare nor a
// restart of the plugin changes it.
func TestArm_Claim_SelectsProcessesUntilDisarmed(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	config := &v1alpha1.ProfilerConfig{CaptureEnvironment: new(true), Arm: new(v1alpha1.ArmOnDemand)}
	record := n.planned(t, config)
	n.cluster.records = func() ([]*checkpoint.Record, error) { return []*checkpoint.Record{record}, nil }
	selects, err := plan.Match(config, n.decoded.patterns)
	require.NoError(t, err)
	none, err := plan.DisarmedMatch()
	require.NoError(t, err)

	command := func(id string, verb session.Verb) session.Command {
		return session.Command{
			ID: "00000000-0000-4000-8000-00000000000" + id, Verb: verb, Namespace: record.Claim.Namespace, Claims: []string{record.Claim.Name, "other"},
		}
	}
	require.NoError(t, n.Ensure(record))
	_, err = n.sessions.Command(t.Context(), command("0", profiles.SessionArm))
	require.ErrorIs(t, err, store.ErrFollowing)
	require.NoError(t, n.store.Lead())
	check := func(want []byte) {
		t.Helper()
		for range 2 {
			content, err := os.ReadFile(filepath.Join(n.store.Folders(record.Claim.UID).Plan, plan.MatchFile))
			require.NoError(t, err)
			assert.Equal(t, want, content)
			require.NoError(t, n.openStore(Options{Files: disk.OS{}, Now: time.Now}))
			n.openSessions(Options{Files: disk.OS{}, Now: time.Now})
			require.NoError(t, n.store.Lead())
			require.NoError(t, n.Ensure(record))
		}
	}
	check(none)
	for i, want := range [][]byte{selects, none, selects} {
		verb := []session.Verb{profiles.SessionArm, profiles.SessionDisarm}[i%2]
		accepted, err := n.sessions.Command(t.Context(), command(string(rune('1'+i)), verb))
		require.NoError(t, err)
		assert.Equal(t, []string{record.Claim.Name}, accepted.Names)
		assert.Empty(t, accepted.Refused)
		check(want)
	}
	n.cluster.records = func() ([]*checkpoint.Record, error) { return nil, nil }
	accepted, err := n.sessions.Command(t.Context(), command("9", profiles.SessionArm))
	require.NoError(t, err)
	assert.Empty(t, accepted.Names, "it was unprepared just now")
}
