package sessions

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestLast_Answers_Merged: the plugin knows the command, and prism-run its result.
func TestLast_Answers_Merged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	assert.Nil(t, w.last())
	w.accepts(start(1), id)
	assert.Equal(t, &session.Answer{ID: uuid(1), Verb: v1alpha1.SessionStart, Outcome: session.Open}, w.last())

	begun, ended := w.now.Add(time.Second), w.now.Add(2*time.Second)
	p.says(fmt.Sprintf("id=%s outcome=Recording begun=%d report=s42-0123456789abcdef", uuid(1), begun.UnixNano()))
	w.pass(10 * time.Second)
	want := &session.Answer{
		ID: uuid(1), Verb: v1alpha1.SessionStart, Outcome: session.Begun, Begun: new(begun.UTC().Round(0)), Report: "0b1c2d3e-s42-0123456789abcdef",
	}
	assert.Equal(t, want, w.last())
	_, open := w.reads(uid, folder)
	assert.True(t, open, "the command is not over")

	p.says(fmt.Sprintf("id=%s outcome=Recorded begun=%d ended=%d report=s42-0123456789abcdef message=a\tb", uuid(1), begun.UnixNano(), ended.UnixNano()))
	w.pass(scanEvery)
	want.Outcome, want.Ended, want.Message = session.Recorded, new(ended.UTC().Round(0)), "a_b"
	for range 2 {
		assert.Equal(t, want, w.last())
		_, open = w.reads(uid, folder)
		assert.False(t, open)
		w.pass(time.Hour)
	}
	want.Verb = ""
	w.restart(disk.OS{})
	assert.Equal(t, want, w.last(), "only the process knows its answer")
	p.says("id="+uuid(1)+" outcome=Recorded", "id="+uuid(2)+" outcome=Failed")
	w.pass(scanEvery)
	assert.Equal(t, &session.Answer{ID: uuid(2), Outcome: session.Failed}, w.last())
}

// TestLast_ForgedTimes_Dropped: an answer has no times before its command, and no end before its begin.
func TestLast_ForgedTimes_Dropped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ begun, ended, wantBegun, wantEnded time.Duration }{
		{-time.Second, time.Second, 0, time.Second},
		{-2 * time.Second, -time.Second, 0, 0},
		{time.Second, -time.Second, time.Second, 0},
		{2 * time.Second, time.Second, 2 * time.Second, 0},
		{time.Hour, time.Hour, 0, 0}, // in the future
		{time.Second, 2 * time.Second, time.Second, 2 * time.Second},
	} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		w.accepts(start(1), id)
		at := func(d time.Duration) *time.Time {
			if d == 0 {
				return nil
			}
			return new(time.Unix(0, w.now.Add(d).UnixNano()).UTC())
		}
		wantBegun, wantEnded := at(c.wantBegun), at(c.wantEnded)
		p.says(fmt.Sprintf("id=%s outcome=Recorded begun=%d ended=%d", uuid(1), w.now.Add(c.begun).UnixNano(), w.now.Add(c.ended).UnixNano()))
		w.pass(10 * time.Second)
		last := w.last()
		assert.Equal(t, []any{wantBegun, wantEnded}, []any{last.Begun, last.Ended}, "%+v", c)
	}
}

// TestLast_NoAnswer_AfterItsTime: the file stays longer, because the process may still answer.
func TestLast_NoAnswer_AfterItsTime(t *testing.T) {
	t.Parallel()
	const ahead = time.Minute
	for name, c := range map[string]struct {
		verb session.Verb
		at   time.Duration
		wait time.Duration
	}{
		"start":          {v1alpha1.SessionStart, 0, startTimeout},
		"start of later": {v1alpha1.SessionStart, ahead + session.Lead(1), ahead + startTimeout},
		"stop":           {v1alpha1.SessionStop, 0, stopTimeout},
		"cancel":         {v1alpha1.SessionCancel, 0, stopTimeout},
	} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		if c.verb != v1alpha1.SessionStart {
			p.is(session.Recording)
		}
		command := to(c.verb, 1)
		if c.at > 0 {
			command.At, command.Duration = w.now.Add(c.at), time.Second
		}
		w.accepts(command, id)
		w.written(folder)
		w.pass(c.wait - 1)
		assert.Equal(t, session.Open, w.last().Outcome, name)
		w.pass(1)
		for range 2 {
			assert.Equal(t, &session.Answer{ID: uuid(1), Verb: c.verb, Outcome: session.NoAnswer}, w.last(), name)
			w.restart(disk.OS{})
		}
		w.pass(keepTime - c.wait + max(0, c.at-session.Lead(1)) - 1)
		w.Sweep()
		assert.FileExists(t, w.control(uid, folder), name)
		w.pass(scanEvery)
		w.Sweep()
		assert.NoFileExists(t, w.control(uid, folder), name)
		assert.Equal(t, session.NoAnswer, w.last().Outcome, name)
		p.says("id=" + uuid(1) + " outcome=Recorded")
		w.pass(scanEvery)
		assert.Equal(t, session.Recorded, w.last().Outcome, "a late answer is better than none")
	}
}

// TestCommand_NoAnswer_AnotherAccepted: a session that did not answer is not blocked.
func TestCommand_NoAnswer_AnotherAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	w.accepts(start(1), id)
	assert.Equal(t, refusedOpen, w.refuses(start(2)))
	w.pass(startTimeout)
	w.accepts(start(3), id)
	assert.Equal(t, uuid(3), w.last().ID)
}

// TestCommand_Replaced_LastIsTheNewer: prism-run answers both.
func TestCommand_Replaced_LastIsTheNewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	later := start(1)
	later.At, later.Duration = w.now.Add(time.Minute), time.Second
	w.accepts(later, id)
	w.accepts(to(v1alpha1.SessionStop, 2), id)
	assert.Equal(t, &session.Answer{ID: uuid(2), Verb: v1alpha1.SessionStop, Outcome: session.Open}, w.last())
	p.says("id="+uuid(1)+" outcome=Cancelled", "id="+uuid(2)+" outcome=NotRecording")
	w.pass(scanEvery)
	assert.Equal(t, &session.Answer{ID: uuid(2), Verb: v1alpha1.SessionStop, Outcome: session.NotRecording}, w.last())
	w.accepts(start(3), id)
}

// TestSweep_Recording_CommandKept: until the recording has ended, and 5 minutes longer; without an end, as earlier versions wrote it, until it
// is stopped.
func TestSweep_Recording_CommandKept(t *testing.T) {
	t.Parallel()
	for duration, end := range map[time.Duration]time.Duration{-1: 0, 0: session.MaxDuration, time.Hour: time.Hour} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		command := start(1)
		command.Duration = max(duration, 0)
		w.accepts(command, id)
		if end == 0 {
			raw, err := session.Control{ID: uuid(1), Verb: v1alpha1.SessionStart}.Encode()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(w.control(uid, folder), raw, controlPerm))
		}
		w.written(folder)
		p.is(session.Recording).says("id=" + uuid(1) + " outcome=Recording")
		w.pass(2*keepTime - time.Nanosecond)
		w.restart(disk.OS{})
		w.Sweep()
		require.FileExists(t, w.control(uid, folder))
		assert.Equal(t, v1alpha1.SessionStart, w.last().Verb)
		if end == 0 {
			w.pass(2 * session.MaxDuration)
			w.Sweep()
			require.FileExists(t, w.control(uid, folder))
			w.accepts(to(v1alpha1.SessionStop, 2), id)
			continue
		}
		w.pass(session.Lead(1) + end - keepTime - time.Nanosecond)
		w.Sweep()
		require.FileExists(t, w.control(uid, folder))
		w.pass(scanEvery)
		w.Sweep()
		require.NoFileExists(t, w.control(uid, folder))
	}
}

// TestSweep_SessionGone_CommandRemoved: but not because an inbox is too large to be read.
func TestSweep_SessionGone_CommandRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.accepts(start(1), id)
	require.NoError(t, os.RemoveAll(p.dir))
	w.bounds.entries = 2
	for i := range 3 {
		w.starts(uid, fmt.Sprintf("w%d-%016x", i, i))
	}
	w.pass(scanEvery)
	w.Sweep()
	assert.FileExists(t, w.control(uid, folder))
	w.bounds.entries = 4
	w.pass(scanEvery)
	w.Sweep()
	assert.NoFileExists(t, w.control(uid, folder))
	assert.Empty(t, w.claims[uid].commands)
}

// TestSweep_RemovalFails_RemovedNext: after a kill the next process does the same.
func TestSweep_RemovalFails_RemovedNext(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		w.accepts(start(1), id)
		p.says("id=" + uuid(1) + " outcome=Recorded")
		left := 0
		w.restart(counting{left: &left})
		w.Sweep()
		assert.FileExists(t, w.control(uid, folder))
		assert.ErrorIs(t, w.failures[0], errKilled)
		if left = 1; killed {
			w.restart(disk.OS{})
		}
		w.pass(scanEvery)
		w.Sweep()
		assert.NoFileExists(t, w.control(uid, folder))
		assert.Equal(t, session.Recorded, w.last().Outcome)
	}
}

// TestLoad_OtherFiles_Removed: a kill leaves a file that is not renamed yet.
func TestLoad_OtherFiles_Removed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	raw, err := session.Control{ID: uuid(1), Verb: v1alpha1.SessionStart}.Encode()
	require.NoError(t, err)
	for name, content := range map[string][]byte{folder: []byte("version=1\n"), folder + disk.TempSuffix: raw, "x": raw} {
		require.NoError(t, os.WriteFile(w.control(uid, name), content, 0o600))
	}
	assert.Nil(t, w.last())
	there, err := os.ReadDir(w.control(uid, ""))
	require.NoError(t, err)
	assert.Empty(t, there)
}

// TestSweep_NothingOpen_NotScanned: nothing is read without a request.
func TestSweep_NothingOpen_NotScanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.Sweep()
	scanned := w.claims[uid].scanned
	w.pass(time.Minute)
	w.Sweep()
	assert.Equal(t, scanned, w.claims[uid].scanned)
	w.accepts(start(1), id)
	p.says("id=" + uuid(1) + " outcome=Recorded")
	w.pass(time.Minute)
	w.Sweep()
	assert.Equal(t, w.now, w.claims[uid].scanned)
	assert.NoFileExists(t, w.control(uid, folder))
}

// TestPrune_ClockSetBack_NoAnswerInTime: a command of the future would stay open.
func TestPrune_ClockSetBack_NoAnswerInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	w.accepts(start(1), id)
	w.pass(-time.Hour)
	assert.Equal(t, session.Open, w.last().Outcome)
	w.pass(startTimeout)
	assert.Equal(t, session.NoAnswer, w.last().Outcome)
}
