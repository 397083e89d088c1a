package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	uid    = "0b1c2d3e-1111-2222-3333-444455556666"
	folder = "w42-0123456789abcdef"
	id     = "0b1c2d3e-" + folder
)

var claimed = store.Claim{UID: uid, Namespace: "team", Name: "train", Node: "n1", Tool: "2023.4.4", ByHand: store.ByHand{Waits: true}}

// world is a node with a claim whose processes wait.
type world struct {
	*Store
	t    *testing.T
	disk *store.Store
	dir  string
	mu   sync.Mutex
	now  time.Time
	// failures are the errors of claims.
	failures []error
	// arms is the number of calls of Options.Arm.
	arms int
	// most is the maximum length of a recording.
	most time.Duration
}

func newWorld(t *testing.T, claims ...store.Claim) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), now: time.Now()}
	w.restart(disk.OS{})
	if claims == nil {
		claims = []store.Claim{claimed}
	}
	for _, of := range claims {
		require.NoError(t, w.disk.Prepare(of, map[string][]byte{"match": []byte("all")}))
	}
	return w
}

// restart replaces the process; files is the disk of the sessions.
func (w *world) restart(files disk.Files) {
	var err error
	w.disk, err = store.Open(store.Options{Dir: w.dir, Files: disk.OS{}, Now: w.clock, Disarmed: []byte("none"), Collector: w.collector()})
	require.NoError(w.t, err)
	w.Store = New(Options{
		Files: files, Now: w.clock, Prepared: w.disk.Prepared, Leads: w.disk.Leads, MaxDuration: func() time.Duration { return w.most },
		Arm: func(armed bool) (func(string) error, error) {
			w.arms++
			return func(uid string) error { return w.disk.Arm(uid, armed, []byte("all")) }, nil
		},
		Failed: func(_ string, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failures = append(w.failures, err)
		},
	})
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass advances the clock, beyond the time of a cached scan.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// collector is the directory of prism-collector.
func (w *world) collector() string { return filepath.Join(w.dir, ".collector") }

func (w *world) inbox(uid string) string { return filepath.Join(w.dir, uid, "inbox") }

func (w *world) control(uid, folder string) string {
	return filepath.Join(w.dir, uid, "plan", session.ControlFolder, folder)
}

// note returns a note like prism-run's.
func (w *world) note(state session.State) string {
	return "version=1\npod=trainer\ncontainer=main\nprocess=/usr/bin/python3\npid=7\nstarted=1000\ntool=x\n" + fmt.Sprintf("state=%-16s\nsince=%020d\n", state, 2000)
}

// process is a prism-run that holds its note.
type process struct {
	w    *world
	dir  string
	note *os.File
}

// starts starts a process that waits.
func (w *world) starts(uid, folder string) *process {
	return w.startsIn(filepath.Join(w.inbox(uid), folder))
}

func (w *world) startsIn(dir string) *process {
	p := &process{w: w, dir: dir}
	require.NoError(w.t, os.MkdirAll(p.dir, 0o700))
	var err error
	p.note, err = os.Create(filepath.Join(p.dir, noteFile))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = p.note.Close() })
	require.NoError(w.t, unix.Flock(int(p.note.Fd()), unix.LOCK_EX))
	return p.is(session.Waiting)
}

// is sets the state of the process.
func (p *process) is(state session.State) *process {
	_, err := p.note.WriteAt([]byte(p.w.note(state)), 0)
	require.NoError(p.w.t, err)
	return p
}

// says writes its answers.
func (p *process) says(lines ...string) *process {
	temporary := filepath.Join(p.dir, "answers.new")
	require.NoError(p.w.t, os.WriteFile(temporary, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	require.NoError(p.w.t, os.Rename(temporary, filepath.Join(p.dir, session.AnswersFile)))
	return p
}

// reads returns the command that the process finds.
func (w *world) reads(uid, folder string) (c session.Control, ok bool) {
	raw, err := os.ReadFile(w.control(uid, folder))
	if err != nil {
		require.ErrorIs(w.t, err, fs.ErrNotExist)
		return c, false
	}
	c, ok = session.ParseControl(raw)
	require.True(w.t, ok, string(raw))
	return c, ok
}

// written makes the file of a command as old as the test's clock.
func (w *world) written(folder string) {
	require.NoError(w.t, os.Chtimes(w.control(uid, folder), w.now, w.now))
}

// uuid returns the id of a command.
func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// to returns a command for the session of the claim.
func to(verb session.Verb, n int) session.Command {
	return session.Command{ID: uuid(n), Verb: verb, Namespace: "team", Sessions: []string{id}}
}

func start(n int) session.Command { return to(v1alpha1.SessionStart, n) }

// accepts requires that a command is accepted by these sessions, and refuses returns the only reason of a refusal.
func (w *world) accepts(c session.Command, names ...string) {
	w.t.Helper()
	a, err := w.Command(w.t.Context(), c)
	require.NoError(w.t, err)
	require.Empty(w.t, a.Refused)
	require.Equal(w.t, names, a.Names)
	require.Equal(w.t, w.clock(), a.Now)
}

func (w *world) refuses(c session.Command) string {
	w.t.Helper()
	a, err := w.Command(w.t.Context(), c)
	require.NoError(w.t, err)
	require.Empty(w.t, a.Names)
	require.Len(w.t, a.Refused, 1)
	return a.Refused[0].Reason
}

// last returns the last command for the only session.
func (w *world) last() *session.Answer {
	w.t.Helper()
	all := w.List("", "")
	require.Len(w.t, all, 1)
	return all[0].Last
}

// counting is a disk that fails all changes from a certain one on, like a killed process.
type counting struct {
	disk.OS
	left *int
}

var errKilled = errors.New("killed")

func (d counting) die() error {
	if *d.left--; *d.left < 0 {
		return errKilled
	}
	return nil
}

func (d counting) Write(p string, data []byte, perm fs.FileMode, durable bool) error {
	if durable {
		return errors.New("a command is not synced")
	}
	if err := d.die(); err != nil {
		_ = d.OS.Write(p, data[:len(data)/2], perm, durable)
		return err
	}
	return d.OS.Write(p, data, perm, durable)
}

func (d counting) Rename(from, to string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.Rename(from, to)
}

func (d counting) Remove(p string) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.OS.Remove(p)
}

// rested is after the time in which files count as fresh.
const rested = 2 * untrusted.Rest
