package sessions

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestCommand_Times_RecordingCoversTheWindow: it begins before the window by the lead of all sessions of the node.
func TestCommand_Times_RecordingCoversTheWindow(t *testing.T) {
	t.Parallel()
	lead := session.Lead(2)
	for name, c := range map[string]struct {
		at, duration, claims time.Duration
		begins, until        time.Duration
	}{
		"until it is stopped":                  {until: lead + session.MaxDuration},
		"duration":                             {duration: time.Minute, until: lead + time.Minute},
		"duration of the claim":                {claims: time.Hour, until: lead + time.Hour},
		"duration instead of the claim's":      {duration: time.Minute, claims: time.Hour, until: lead + time.Minute},
		"window":                               {at: time.Minute, duration: time.Second, begins: time.Minute - lead, until: time.Minute + time.Second},
		"window that begins before the lead":   {at: time.Second, duration: time.Second, until: 2 * time.Second},
		"window that began just now elsewhere": {at: -time.Second, duration: time.Minute, until: time.Minute - time.Second},
	} {
		of := claimed
		of.ByHand.Duration = c.claims
		w := newWorld(t, of)
		w.starts(uid, folder)
		w.starts(uid, "w43-0123456789abcdef")
		command := start(1)
		command.Sessions, command.Selection, command.Duration = nil, &session.Selection{Fields: "status.state=Waiting"}, c.duration
		if c.at != 0 {
			command.At = w.now.Add(c.at)
		}
		w.accepts(command, id, "0b1c2d3e-w43-0123456789abcdef")
		after := func(d time.Duration) time.Time {
			if d == 0 {
				return time.Time{}
			}
			return time.Unix(0, w.now.Add(d).UnixNano()).UTC()
		}
		for _, of := range []string{folder, "w43-0123456789abcdef"} {
			got, _ := w.reads(uid, of)
			assert.Equal(t, session.Control{ID: uuid(1), Verb: v1alpha1.SessionStart, At: after(c.begins), Until: after(c.until)}, got, name)
		}
	}
}

// TestCommand_States_AcceptedOrRefused: prev is the command that the session has not answered.
func TestCommand_States_AcceptedOrRefused(t *testing.T) {
	t.Parallel()
	const start, stop, cancel = v1alpha1.SessionStart, v1alpha1.SessionStop, v1alpha1.SessionCancel
	for _, c := range []struct {
		state session.State
		open  session.Verb
		verb  session.Verb
		want  string
	}{
		{session.Waiting, "", start, ""},
		{session.Waiting, "", stop, refusedWaiting},
		{session.Waiting, "", cancel, refusedWaiting},
		{session.Waiting, start, start, refusedOpen},
		{session.Waiting, start, stop, ""},
		{session.Waiting, start, cancel, ""},
		{session.Starting, "", start, refusedRecording},
		{session.Starting, start, cancel, ""},
		{session.Recording, "", start, refusedRecording},
		{session.Recording, "", stop, ""},
		{session.Recording, "", cancel, ""},
		{session.Recording, stop, start, refusedRecording},
		{session.Recording, stop, stop, refusedOpen},
		{session.Recording, stop, cancel, refusedOpen},
		{session.Recording, cancel, stop, refusedOpen},
		{session.Ending, "", start, refusedEnding},
		{session.Ending, "", stop, refusedEnding},
		{session.Ending, "", cancel, refusedEnding},
		{session.Ending, stop, cancel, refusedOpen},
	} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		if c.open == start {
			w.accepts(to(start, 1), id)
		} else if c.open != "" {
			p.is(session.Recording)
			w.accepts(to(c.open, 1), id)
		}
		p.is(c.state)
		w.pass(scanEvery)
		dry := to(c.verb, 2)
		dry.DryRun = true
		before, had := w.reads(uid, folder)
		for i, command := range []session.Command{dry, to(c.verb, 2)} {
			if c.want == "" {
				w.accepts(command, id)
			} else {
				assert.Equal(t, c.want, w.refuses(command), "%+v", c)
			}
			after, has := w.reads(uid, folder)
			if i == 0 || c.want != "" {
				assert.Equal(t, had, has)
				assert.Equal(t, before, after, "%+v", c)
			} else {
				assert.Equal(t, session.Control{ID: uuid(2), Verb: c.verb, Until: w.latest(c.verb)}, after, "%+v", c)
			}
		}
	}
}

// latest returns the end of the recording of one session that is started without a duration.
func (w *world) latest(verb session.Verb) time.Time {
	if verb != v1alpha1.SessionStart {
		return time.Time{}
	}
	return time.Unix(0, w.now.Add(session.Lead(1)+session.MaxDuration).UnixNano()).UTC()
}

func TestCommand_Settings_RefusedWithoutEffect(t *testing.T) {
	t.Parallel()
	of := claimed
	of.ByHand.SamplesCPU = true
	for _, samples := range []bool{false, true} {
		of.ByHand.SamplesCPU = samples
		w := newWorld(t, of)
		w.starts(uid, folder)
		frequency, backtrace := start(1), start(2)
		frequency.SamplingFrequencyHz, backtrace.Backtrace = 500, "LBR"
		if !samples {
			assert.Equal(t, refusedFrequency, w.refuses(frequency))
			assert.Equal(t, refusedBacktrace, w.refuses(backtrace))
			continue
		}
		frequency.Backtrace = "LBR"
		w.accepts(frequency, id)
		got, _ := w.reads(uid, folder)
		want := session.Control{ID: uuid(1), Verb: v1alpha1.SessionStart, SamplingFrequencyHz: 500, Backtrace: "LBR", Until: w.latest(v1alpha1.SessionStart)}
		assert.Equal(t, want, got)
	}
}

func TestCommand_StoreFull_StartRefused(t *testing.T) {
	t.Parallel()
	of := claimed
	of.MaxBytes = 1 << 10
	w := newWorld(t, of)
	p := w.starts(uid, folder)
	require.NoError(t, os.WriteFile(filepath.Join(w.inbox(uid), "large"), make([]byte, 1<<16), 0o600))
	w.disk.Scan(t.Context())
	assert.Equal(t, refusedFull, w.refuses(start(1)))
	p.is(session.Recording)
	w.pass(scanEvery)
	w.accepts(to(v1alpha1.SessionStop, 2), id)
}

// TestCommand_ForeignSession_NotFound: names of another namespace, of an older namespace of that name, of claims that are gone, or of no
// session are not found on the node: the controller reports them as missing.
func TestCommand_ForeignSession_NotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.known("first")
	none := func(c session.Command) {
		t.Helper()
		a, err := w.Command(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, session.Accepted{Now: w.clock()}, a)
	}
	foreign, older, unknown := start(1), start(2), start(3)
	foreign.Namespace, older.NamespaceUID, unknown.Sessions = "others", "second", []string{"0b1c2d3e-w1-0123456789abcdef", "x"}
	for _, c := range []session.Command{foreign, older, unknown} {
		none(c)
	}
	assert.Empty(t, w.List("team", "second"))
	assert.Len(t, w.List("team", "first"), 1)
	mine := start(4)
	mine.NamespaceUID = "first"
	w.accepts(mine, id)
	require.NoError(t, p.note.Close())
	w.pass(rested)
	none(start(5))
	require.NoError(t, w.disk.Release(uid))
	none(start(6))
}

// known makes the UID of the claim's namespace known.
func (w *world) known(uid string) {
	ctx, stop := context.WithCancel(w.t.Context())
	stop()
	w.disk.FollowCluster(ctx, cluster{store.Namespace{UID: uid}})
}

type cluster struct{ namespace store.Namespace }

func (c cluster) Namespace(context.Context, string) (store.Namespace, error) { return c.namespace, nil }
func (cluster) Announce(context.Context, bool) error                         { return nil }

// TestCommand_AnotherProcessLeads_Refused: two processes of the node would overwrite each other's commands.
func TestCommand_AnotherProcessLeads_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.accepts(start(1), id)
	follows := New(w.Options)
	leads := false
	follows.Leads = func() error {
		if leads {
			return nil
		}
		return store.ErrFollowing
	}
	_, err := follows.Command(t.Context(), start(2))
	require.ErrorIs(t, err, store.ErrFollowing)
	assert.Equal(t, uuid(1), follows.List("", "")[0].Last.ID)
	w.pass(startTimeout)
	w.accepts(start(2), id)
	require.NoError(t, os.WriteFile(w.control(uid, "x.tmp"), nil, 0o600))
	w.pass(scanEvery)
	assert.Equal(t, uuid(2), follows.List("", "")[0].Last.ID, "it reads what the other process writes")
	assert.FileExists(t, w.control(uid, "x.tmp"), "it removes nothing")
	w.pass(startTimeout)
	w.accepts(start(3), id)
	p.says("id=" + uuid(3) + " outcome=Failed")
	assert.Equal(t, session.Failed, follows.List("", "")[0].Last.Outcome)
	assert.FileExists(t, w.control(uid, folder))
	leads = true
	assert.Equal(t, uuid(3), follows.List("", "")[0].Last.ID)
	assert.NoFileExists(t, w.control(uid, "x.tmp"))
	assert.NoFileExists(t, w.control(uid, folder))
	leads = false
	w.pass(scanEvery)
	w.accepts(start(4), id)
	assert.Equal(t, uuid(4), follows.List("", "")[0].Last.ID)
}

func TestCommand_Claims_ArmedAndDisarmed(t *testing.T) {
	t.Parallel()
	onDemand := claimed
	onDemand.UID, onDemand.Name, onDemand.ByHand.OnDemand = "other", "demand", true
	w := newWorld(t, claimed, onDemand)
	match := func() string {
		content, err := os.ReadFile(filepath.Join(w.dir, "other", "plan", "match"))
		require.NoError(t, err)
		return string(content)
	}
	arm := session.Command{ID: uuid(1), Verb: v1alpha1.SessionArm, Namespace: "team", Claims: []string{"train", "demand", "missing"}, DryRun: true}
	want := session.Accepted{Names: []string{"demand"}, Refused: []session.Refusal{{Name: "train", Reason: refusedArmed}}, Now: w.now}
	for _, dry := range []bool{true, false, false} {
		arm.DryRun = dry
		a, err := w.Command(t.Context(), arm)
		require.NoError(t, err)
		assert.Equal(t, want, a)
		assert.Equal(t, map[bool]string{true: "none", false: "all"}[dry], match())
		assert.Equal(t, []session.Claim{{Claim: "demand", ClaimUID: "other", Namespace: "team", Armed: !dry}}, w.Claims("team", ""))
	}
	foreign := arm
	foreign.ID, foreign.Namespace = uuid(2), "others"
	a, err := w.Command(t.Context(), foreign)
	require.NoError(t, err)
	assert.Equal(t, session.Accepted{Now: w.now}, a)

	disarm := arm
	disarm.ID, disarm.Verb, disarm.Claims = uuid(3), v1alpha1.SessionDisarm, []string{"demand"}
	arms := w.Arm
	for _, c := range []struct {
		err  error
		want session.Accepted
	}{
		{fs.ErrNotExist, session.Accepted{Now: w.now}},
		{errKilled, session.Accepted{Refused: []session.Refusal{{Name: "demand", Reason: refusedFailed}}, Now: w.now}},
	} {
		w.Arm = func(bool) (func(string) error, error) { return func(string) error { return c.err }, nil }
		w.answered = answered{}
		a, err := w.Command(t.Context(), disarm)
		require.NoError(t, err)
		assert.Equal(t, c.want, a)
		assert.Equal(t, "all", match())
	}
	w.Arm = func(bool) (func(string) error, error) { return nil, store.ErrFollowing }
	_, err = w.Command(t.Context(), disarm)
	require.ErrorIs(t, err, store.ErrFollowing)
	w.Arm = arms
	w.accepts(disarm, "demand")
	assert.Equal(t, "none", match())
}

// TestCommand_ManyClaims_RecordsReadOnce: the records of the node are read for a command that names its claims, once.
func TestCommand_ManyClaims_RecordsReadOnce(t *testing.T) {
	t.Parallel()
	one, other := claimed, claimed
	one.UID, one.Name, one.ByHand.OnDemand = "one", "one", true
	other.UID, other.Name, other.ByHand.OnDemand = "other", "other", true
	w := newWorld(t, one, other)
	arm := session.Command{ID: uuid(1), Verb: v1alpha1.SessionArm, Namespace: "team", Claims: []string{"elsewhere"}}
	w.accepts(arm)
	assert.Zero(t, w.arms, "none of the claims is on the node")
	arm.ID, arm.Claims = uuid(2), []string{"one", "other"}
	w.accepts(arm, "one", "other")
	assert.Equal(t, 1, w.arms)
}

func TestCommand_Invalid_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	names := make([]string, session.MaxNames+1)
	for name, change := range map[string]func(c *session.Command){
		"no id":          func(c *session.Command) { c.ID = "" },
		"no verb":        func(c *session.Command) { c.Verb = "" },
		"another verb":   func(c *session.Command) { c.Verb = "Pause" },
		"no namespace":   func(c *session.Command) { c.Namespace = "" },
		"nothing":        func(c *session.Command) { c.Sessions = nil },
		"two":            func(c *session.Command) { c.Selection = &session.Selection{} },
		"claims":         func(c *session.Command) { c.Sessions, c.Claims = nil, []string{"train"} },
		"sessions armed": func(c *session.Command) { c.Verb = v1alpha1.SessionArm },
		"selection disarmed": func(c *session.Command) {
			c.Sessions, c.Selection, c.Verb = nil, &session.Selection{}, v1alpha1.SessionDisarm
		},
		"many":                  func(c *session.Command) { c.Sessions = names },
		"selector":              func(c *session.Command) { c.Sessions, c.Selection = nil, &session.Selection{Fields: "spec.x=y"} },
		"negative":              func(c *session.Command) { c.Duration = -1 },
		"long":                  func(c *session.Command) { c.Duration = session.MaxDuration + 1 },
		"at without a duration": func(c *session.Command) { c.At = w.now },
		"past":                  func(c *session.Command) { c.At, c.Duration = w.now.Add(-time.Hour), time.Second },
		"ahead":                 func(c *session.Command) { c.At, c.Duration = w.now.Add(time.Hour), time.Second },
		"frequency":             func(c *session.Command) { c.SamplingFrequencyHz = 9000 },
		"backtrace":             func(c *session.Command) { c.Backtrace = "x\nid=y" },
		"stop with a duration":  func(c *session.Command) { c.Verb, c.Duration = v1alpha1.SessionStop, time.Second },
	} {
		c := start(1)
		change(&c)
		_, err := w.Command(t.Context(), c)
		assert.ErrorIs(t, err, session.ErrInvalid, name)
	}
	_, ok := w.reads(uid, folder)
	assert.False(t, ok)
}
