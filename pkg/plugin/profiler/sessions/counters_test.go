package sessions

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// countedFolder is the folder of the collector's session, and countedID its id.
const (
	countedFolder = "w9-00000000000000ff"
	countedID     = "0b1c2d3e-" + countedFolder
)

// counted returns the claim with its counters recorded.
func counted() store.Claim {
	c := claimed
	c.Counters = true
	return c
}

// waitsForCounters starts the collector's prism-run for the claim.
func (w *world) waitsForCounters(folder string) *process {
	return w.startsIn(filepath.Join(w.collector(), uid, counters.InboxDir, folder))
}

// countersControl returns the path of the command for a session of the collector.
func (w *world) countersControl(folder string) string {
	return filepath.Join(w.collector(), uid, counters.PlanDir, session.ControlFolder, folder)
}

// ids returns the ids of all sessions.
func (w *world) ids() (all []string) {
	for _, one := range w.List("team", "") {
		all = append(all, one.ID)
	}
	return all
}

// TestCommand_Counters_SessionsOfBoth: a selection addresses both, and each one reads its command in its own plan.
func TestCommand_Counters_SessionsOfBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, counted())
	p := w.waitsForCounters(countedFolder)
	w.starts(uid, folder)
	assert.Equal(t, []string{countedID, id}, w.ids())
	both := start(1)
	both.Sessions, both.Selection = nil, &session.Selection{Fields: "spec.claim=train"}
	w.accepts(both, countedID, id)
	_, ok := w.reads(uid, folder)
	assert.True(t, ok)
	raw, err := os.ReadFile(w.countersControl(countedFolder))
	require.NoError(t, err)
	of, ok := session.ParseControl(raw)
	assert.True(t, ok)
	assert.Equal(t, session.Control{ID: uuid(1), Verb: v1alpha1.SessionStart, Until: time.Unix(0, w.now.Add(session.Lead(2)+session.MaxDuration).UnixNano()).UTC()}, of)
	assert.NoFileExists(t, w.control(uid, countedFolder))
	assert.NoFileExists(t, w.countersControl(folder))

	p.is(session.Recording).says("id=" + uuid(1) + " outcome=Recording report=s9-0123456789abcdef")
	w.pass(scanEvery)
	one := w.List("team", "")[0]
	assert.Equal(t, []any{session.Recording, "0b1c2d3e-s9-0123456789abcdef"}, []any{one.State, one.Last.Report})
	stop := to(v1alpha1.SessionStop, 2)
	stop.Sessions = []string{countedID}
	w.accepts(stop, countedID)
	p.says("id="+uuid(1)+" outcome=Recorded", "id="+uuid(2)+" outcome=Recorded")
	w.restart(disk.OS{})
	w.pass(scanEvery)
	w.Sweep()
	assert.NoFileExists(t, w.countersControl(countedFolder))
	assert.Len(t, w.claims, 2)
	require.NoError(t, w.disk.Release(uid))
	w.Sweep()
	assert.Empty(t, w.claims)
}

// TestCommand_CountersNameForged_CollectorsSession: a container creates a session with the name of the collector's. While that exists, it has
// no effect.
func TestCommand_CountersNameForged_CollectorsSession(t *testing.T) {
	t.Parallel()
	other := claimed
	other.UID, other.Name = "0b1c2d3f-other", "other"
	w := newWorld(t, counted(), other)
	p := w.waitsForCounters(countedFolder)
	w.starts(uid, countedFolder).is(session.Recording)
	w.starts(other.UID, countedFolder)
	assert.Equal(t, []string{countedID, "0b1c2d3f-" + countedFolder}, w.ids(), "the name is no secret of one claim")
	assert.Equal(t, session.Waiting, w.List("team", "")[0].State)
	c := start(1)
	c.Sessions = []string{countedID}
	w.accepts(c, countedID)
	assert.FileExists(t, w.countersControl(countedFolder))
	assert.NoFileExists(t, w.control(uid, countedFolder))
	require.NoError(t, os.RemoveAll(p.dir))
	w.pass(scanEvery)
	assert.Equal(t, session.Recording, w.List("team", "")[0].State)
}

// TestCommand_CountersOfClaimOnDemand_ArmedOnce: arming is about containers.
func TestCommand_CountersOfClaimOnDemand_ArmedOnce(t *testing.T) {
	t.Parallel()
	of := counted()
	of.ByHand.OnDemand = true
	w := newWorld(t, of)
	assert.Equal(t, []session.Claim{{Claim: "train", ClaimUID: uid, Namespace: "team"}}, w.Claims("team", ""))
	w.accepts(session.Command{ID: uuid(1), Verb: v1alpha1.SessionArm, Namespace: "team", Claims: []string{"train"}}, "train")
	assert.True(t, w.Claims("team", "")[0].Armed)
}

// TestCommand_CountersWithCPUSettings_Refused: also if the claim's processes are sampled.
func TestCommand_CountersWithCPUSettings_Refused(t *testing.T) {
	t.Parallel()
	of := counted()
	of.ByHand.SamplesCPU = true
	w := newWorld(t, of)
	w.waitsForCounters(countedFolder)
	w.starts(uid, folder)
	for i, change := range []func(c *session.Command){
		func(c *session.Command) { c.SamplingFrequencyHz = 500 }, func(c *session.Command) { c.Backtrace = "LBR" },
	} {
		c := start(i)
		c.Sessions, c.DryRun = []string{id, countedID}, true
		change(&c)
		a, err := w.Command(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, session.Accepted{Names: []string{id}, Refused: []session.Refusal{{Name: countedID, Reason: refusedCounters}}, Now: w.now}, a)
	}
}

// TestCommand_MaxDuration_LimitsStart: a longer duration is refused, and a recording without a duration ends after it, also if the claim's
// own duration is longer.
func TestCommand_MaxDuration_LimitsStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, duration, claims time.Duration
		until                  time.Duration
		refused                string
	}{
		{most: time.Hour, until: time.Hour},
		{most: time.Hour, duration: time.Hour, until: time.Hour},
		{most: time.Hour, duration: time.Hour + 1, refused: "duration must be at most 1h0m0s, the limit of the profiler's policy"},
		{most: time.Hour, claims: 2 * time.Hour, until: time.Hour},
		{most: time.Hour, claims: time.Minute, until: time.Minute},
		{most: time.Hour, claims: 2 * time.Hour, duration: time.Minute, until: time.Minute},
		{duration: session.MaxDuration, until: session.MaxDuration},
		{until: session.MaxDuration},
	} {
		of := claimed
		of.ByHand.Duration = c.claims
		w := newWorld(t, of)
		w.most = c.most
		w.starts(uid, folder)
		command := start(1)
		command.Duration = c.duration
		if c.refused != "" {
			assert.Equal(t, c.refused, w.refuses(command))
			assert.NoFileExists(t, w.control(uid, folder))
			continue
		}
		w.accepts(command, id)
		got, _ := w.reads(uid, folder)
		assert.Equal(t, w.now.Add(session.Lead(1)+c.until).UnixNano(), got.Until.UnixNano(), "%+v", c)
	}
	w := newWorld(t)
	w.MaxDuration = nil
	w.starts(uid, folder)
	w.accepts(start(1), id)
	got, _ := w.reads(uid, folder)
	assert.Equal(t, w.latest(v1alpha1.SessionStart), got.Until)
}
