package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// claimEvents are the Events of claims.
type claimEvents struct{ noted }

func (e *claimEvents) WarnOfClaim(namespace, name, uid, reason, _, note string) {
	e.add(strings.Join([]string{namespace, name, uid, reason, note}, " "))
}

// TestRelease_NothingRecorded_EventOfTheClaim: the owner of a Job finds out after the claim and its conditions are gone. A claim that is unprepared
// twice has one Event, and one without a profile none.
func TestRelease_NothingRecorded_EventOfTheClaim(t *testing.T) {
	t.Parallel()
	n := profilingNode(t, "", "2023.4.4")
	written := &claimEvents{}
	connect := n.adapters.API
	n.adapters.API = func(ctx context.Context) (API, error) {
		api, err := connect(ctx)
		api.ClaimEvents = written
		return api, err
	}
	p := n.build(t)
	profiled, plain := n.profiledClaim(t, `"captureEnvironment":true`), n.claim(t, "plain", 1)
	for _, rc := range []*resourceapi.ResourceClaim{profiled, plain} {
		require.NoError(t, prepared(t.Context(), p, rc))
		require.NoError(t, unprepared(t.Context(), p, rc))
		require.NoError(t, unprepared(t.Context(), p, rc))
	}
	require.Len(t, written.all(), 1)
	assert.Contains(t, written.all()[0], strings.Join([]string{profiled.Namespace, profiled.Name, string(profiled.UID)}, " ")+
		" ProfileIncomplete NoProcessMatched: No process was recorded yet; the profile records ")
}
