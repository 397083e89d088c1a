package sessions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

func TestList_ProcessThatWaits_Described(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	want := session.Session{
		ID: id, Namespace: "team", Claim: "train", ClaimUID: uid, Pod: "trainer", Container: "main", Node: "n1", Process: "python3", PID: 7,
		Tool: "2023.4.4", Started: time.Unix(0, 1000).UTC(), Since: time.Unix(0, 2000).UTC(), State: session.Waiting,
	}
	assert.Equal(t, []session.Session{want}, w.List("team", ""))
	p.is(session.Recording)
	assert.Equal(t, session.Waiting, w.List("team", "")[0].State, "at most one scan in a second")
	w.pass(scanEvery)
	assert.Equal(t, session.Recording, w.List("team", "")[0].State)

	require.NoError(t, p.note.Close())
	w.pass(scanEvery)
	assert.Len(t, w.List("team", ""), 1, "a process may be about to lock its note")
	w.pass(rested)
	assert.Empty(t, w.List("team", ""))
}

func TestList_HostileFolders_NotListedAndNotFollowed(t *testing.T) {
	t.Parallel()
	valid := newWorld(t).note(session.Waiting)
	outside := filepath.Join(t.TempDir(), "note")
	require.NoError(t, os.WriteFile(outside, []byte(valid), 0o600))
	write := func(text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, noteFile), []byte(text), 0o600) }
	}
	for name, put := range map[string]func(dir string) error{
		"nothing":                 func(string) error { return nil },
		"note is a link":          func(dir string) error { return os.Symlink(outside, filepath.Join(dir, noteFile)) },
		"note is a hard link":     func(dir string) error { return os.Link(outside, filepath.Join(dir, noteFile)) },
		"note is a pipe":          func(dir string) error { return unix.Mkfifo(filepath.Join(dir, noteFile), 0o600) },
		"note is a folder":        func(dir string) error { return os.Mkdir(filepath.Join(dir, noteFile), 0o700) },
		"no state":                write(strings.Replace(valid, "state=", "x=", 1)),
		"another state":           write(strings.Replace(valid, "Waiting", "Cancelled", 1)),
		"state not complete":      write(strings.Split(valid, "Waiting")[0] + "Waiting"),
		"state behind the bounds": write(strings.Repeat("x", untrusted.MaxNote) + "\n" + valid),
		"folder is a link": func(dir string) error {
			return replaced(dir, func() error { return os.Symlink(filepath.Dir(outside), dir) })
		},
		"folder is a file": func(dir string) error {
			return replaced(dir, func() error { return os.WriteFile(dir, []byte(valid), 0o600) })
		},
		"folder is a pipe": func(dir string) error { return replaced(dir, func() error { return unix.Mkfifo(dir, 0o600) }) },
	} {
		w := newWorld(t)
		dir := filepath.Join(w.inbox(uid), folder)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, put(dir), name)
		assert.Empty(t, w.List("", ""), name)
		assert.Equal(t, session.Accepted{Now: w.clock()}, ignoreError(w.Command(t.Context(), start(1))), name)
	}
}

func replaced(dir string, put func() error) error {
	if err := os.Remove(dir); err != nil {
		return err
	}
	return put()
}

func ignoreError[T any](of T, _ error) T { return of }

// TestList_HostileAnswers_AnswersMissing: the session itself is listed.
func TestList_HostileAnswers_AnswersMissing(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "answers")
	line := "id=" + uuid(1) + " outcome=Recorded\n"
	require.NoError(t, os.WriteFile(outside, []byte(line), 0o600))
	for name, put := range map[string]func(path string) error{
		"link":   func(p string) error { return os.Symlink(outside, p) },
		"pipe":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"large": func(p string) error {
			return os.WriteFile(p, []byte(strings.Repeat("x", session.MaxAnswers)+"\n"+line), 0o600)
		},
	} {
		w := newWorld(t)
		p := w.starts(uid, folder)
		require.NoError(t, put(filepath.Join(p.dir, session.AnswersFile)))
		assert.Nil(t, w.last(), name)
	}
}

// TestList_ForgedTimes_NotInTheFuture: nothing that a container says is later than the node's clock.
func TestList_ForgedTimes_NotInTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	soon := w.now.Add(30 * time.Second).UnixNano()
	for _, at := range []int64{soon, 1 << 62, -1, 0} {
		text := fmt.Sprintf("started=%d\nstate=Waiting\nsince=%020d\n", at, at)
		require.NoError(t, os.WriteFile(p.note.Name(), []byte(text), 0o600))
		w.pass(scanEvery)
		one := w.List("", "")[0]
		assert.Equal(t, w.now.UTC(), one.Started, at)
		assert.Equal(t, w.now.UTC(), one.Since, at)
	}
}

// TestScan_ManyFolders_Bounded: a hostile container affects only the sessions of its claim.
func TestScan_ManyFolders_Bounded(t *testing.T) {
	t.Parallel()
	other := claimed
	other.UID, other.Name = "ffffffff-1", "other"
	w := newWorld(t, claimed, other)
	w.bounds = bounds{entries: 40, claim: 8, namespace: 10, bytes: 1 << 20}
	for i := range 100 {
		w.starts(uid, fmt.Sprintf("w%d-%016x", i+1, i))
	}
	w.starts(other.UID, folder)
	listed := func() map[string]int {
		n := map[string]int{}
		for _, one := range w.List("team", "") {
			n[one.ClaimUID]++
		}
		return n
	}
	assert.Equal(t, map[string]int{uid: 8, other.UID: 1}, listed())
	for i := range 20 {
		w.starts(other.UID, fmt.Sprintf("w%d-%016x", i+1, i))
	}
	w.pass(scanEvery)
	assert.Equal(t, map[string]int{uid: 8, other.UID: 2}, listed(), "of a namespace")

	w.bounds.bytes = int64(len(w.note(session.Waiting)))
	w.restartScan()
	assert.Equal(t, map[string]int{uid: 1, other.UID: 1}, listed(), "a scan reads no more")
	w.pass(rested)
	listed()
	w.pass(scanEvery)
	assert.Equal(t, map[string]int{uid: 2, other.UID: 2}, listed(), "unchanged notes are not read again")
}

// TestScan_HugeNote_ReadInPart: the others of its claim are read as well.
func TestScan_HugeNote_ReadInPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.starts(uid, "w43-0123456789abcdef")
	require.NoError(t, os.Truncate(p.note.Name(), 1<<20))
	w.bounds.bytes = untrusted.MaxNote + 1
	assert.Len(t, w.List("", ""), 2)
}

// restartScan forgets all sessions.
func (w *world) restartScan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = map[string]*claim{}
}

// TestScan_StateChangesWithinATick_Seen: the note has the same size, and may have the same times.
func TestScan_StateChangesWithinATick_Seen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	w.List("", "")
	var before unix.Stat_t
	require.NoError(t, unix.Fstat(int(p.note.Fd()), &before))
	assert.Zero(t, w.claims[uid].sessions[folder].note, "it must be read again")
	w.pass(rested)
	w.List("", "")
	assert.Equal(t, untrusted.StampOf(&before), w.claims[uid].sessions[folder].note)
}

// TestList_Claims_OnlyPreparedOnesThatWait: not released claims, and claims of another namespace of that name.
func TestList_Claims_OnlyPreparedOnesThatWait(t *testing.T) {
	t.Parallel()
	other, second := claimed, claimed
	other.UID, other.ByHand, second.UID = "other", store.ByHand{OnDemand: true}, "second"
	w := newWorld(t, claimed, other, second)
	for _, of := range []string{uid, other.UID, second.UID} {
		w.starts(of, folder)
	}
	assert.Len(t, w.List("team", ""), 2)
	assert.Empty(t, w.List("another", ""))
	assert.Equal(t, []session.Claim{{Claim: "train", ClaimUID: "other", Namespace: "team"}}, w.Claims("team", ""))
	assert.Empty(t, w.Claims("another", ""))
	require.NoError(t, w.disk.Release(second.UID))
	assert.Len(t, w.List("team", ""), 1)
	w.Sweep()
	assert.Len(t, w.claims, 1, "nothing is kept of a released claim")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("pod=p\nstate=Waiting         \nsince=00000000000000000001\n"),
		[]byte("id="+uuid(1)+" outcome=Recorded begun=5 ended=1 report=s1-0123456789abcdef message=\x00\n"), int64(3))
	f.Fuzz(func(t *testing.T, note, answers []byte, written int64) {
		now := time.Unix(100, 0)
		w := &waiting{said: session.ParseAnswers(answers, now)}
		w.parse(note, now)
		c := &claim{of: store.Prepared{Claim: claimed}, sessions: map[string]*waiting{folder: w}, commands: map[string]*command{}}
		for _, of := range []*command{nil, {Control: session.Control{ID: uuid(1)}, at: time.Unix(0, written)}} {
			if of != nil {
				c.commands[folder] = of
			}
			one := c.session(folder, now)
			assert.Empty(t, validation.IsDNS1123Label(one.ID))
			assert.False(t, one.Started.After(now) || one.Since.After(now))
			for _, text := range []string{one.Pod, one.Container, one.Process} {
				assert.LessOrEqual(t, len(text), untrusted.MaxField)
				assert.Equal(t, untrusted.Escape(text, untrusted.MaxField), text)
			}
			last := one.Last
			if last == nil {
				continue
			}
			assert.Equal(t, untrusted.Escape(last.Message, maxMessage), last.Message)
			assert.True(t, last.Report == "" || strings.HasPrefix(last.Report, "0b1c2d3e-s"))
			for _, at := range []*time.Time{last.Begun, last.Ended} {
				assert.False(t, at != nil && (at.After(now) || of != nil && at.Before(of.at)))
			}
			assert.False(t, last.Begun != nil && last.Ended != nil && last.Ended.Before(*last.Begun))
		}
	})
}
