package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const (
	uid    = "0b1c2d3e-1111-2222-3333-444455556666"
	folder = "s42-0123456789abcdef"
	id     = "0b1c2d3e-" + folder
)

var claimed = Claim{UID: uid, Namespace: "team", Name: "train", Node: "n1", Tool: "2023.4.4", MaxBytes: 1 << 20, Retention: time.Hour}

// world is a store with a claim.
type world struct {
	*Store
	t    *testing.T
	dir  string
	now  time.Time
	seen []report.State
	// collector is the directory of prism-collector; "" without one.
	collector string
}

func newWorld(t *testing.T, imports bool) *world {
	w := &world{t: t, dir: t.TempDir(), now: time.Now()}
	w.reopen(imports, disk.OS{})
	require.NoError(t, w.Prepare(claimed, map[string][]byte{"run": []byte("a"), "match": []byte("b")}))
	return w
}

func (w *world) reopen(imports bool, files disk.Files) {
	store, err := Open(Options{
		Dir: w.dir, Files: files, Imports: imports, Now: func() time.Time { return w.now }, Collector: w.collector,
		Changed: func(r report.Report) { w.seen = append(w.seen, r.State) },
	})
	require.NoError(w.t, err)
	w.Store = store
}

func (w *world) Scan() { w.Store.Scan(w.t.Context()) }

// session creates a session like prism-run; according to its note it has ended unless live is set.
func (w *world) session(name string, content []byte, note string) string {
	dir := filepath.Join(w.dir, uid, inboxDir, folder)
	require.NoError(w.t, os.MkdirAll(dir, 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "note"), []byte(note), 0o600))
	if name != "" {
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

func (w *world) get() report.Report {
	r, err := w.Get(uid, id)
	require.NoError(w.t, err)
	return r
}

const finished = "version=1\npod=trainer\ncontainer=main\nprocess=/usr/bin/python3\npid=7\nstarted=1000\nfile=a/../b c\nstate=Finished\nexited=2000\n"

func TestScan_FinishedSession_Ready(t *testing.T) {
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	r := w.get()
	require.Equal(t, report.Ready, r.State)
	require.Equal(t, []any{"trainer", "main", "python3", 7, "a_.._b_c.nsys-rep"}, []any{r.Pod, r.Container, r.Process, r.PID, r.File})
	require.NoDirExists(t, filepath.Join(w.dir, uid, inboxDir, folder))
	f, _, err := w.Content(uid, id)
	require.NoError(t, err)
	defer f.Close()
	all, _ := io.ReadAll(f)
	require.Equal(t, "content", string(all))
	require.Equal(t, "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73", r.SHA256)
	require.NoError(t, w.Delete(uid, id, report.Deletion{}))
	require.Empty(t, w.List("team", ""))
}

// TestScan_LockedNote_Recording: the supervisor holds the lock as long as its process runs, which continues after a recording of a range or
// of a duration.
func TestScan_LockedNote_Recording(t *testing.T) {
	w := newWorld(t, false)
	dir := w.session("report.nsys-rep", []byte("part"), strings.Replace(finished, "Finished\nexited=2000", "Recording", 1))
	f, err := os.OpenFile(filepath.Join(dir, "note"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	w.Scan()
	require.Equal(t, report.Recording, w.get().State)
	require.Nil(t, w.get().Ended)
	require.ErrorIs(t, w.Delete(uid, id, report.Deletion{}), ErrBusy)
	_, err = f.WriteString("state=Finished\n")
	require.NoError(t, err)
	w.Scan()
	require.Equal(t, report.Ready, w.get().State)
	require.NotNil(t, w.get().Ended)
	require.Equal(t, []report.State{report.Recording, report.Ready}, w.seen)
}

// TestScan_ReportElsewhere_Path: reports that stay in their container are named in the note.
func TestScan_ReportElsewhere_Path(t *testing.T) {
	for name, c := range map[string]struct {
		note string
		want report.Report
	}{
		"imported": {"path=/work/r\npath=/work/r.nsys-rep\n" + finished, report.Report{State: report.Ready, File: "a_.._b_c.nsys-rep", Path: "/work/r.nsys-rep"}},
		"raw":      {"path=/work/r.qdstrm\n" + finished, report.Report{State: report.Raw, File: "a_.._b_c.qdstrm", Path: "/work/r.qdstrm"}},
		"neither":  {"path=/work/r\n" + finished, report.Report{State: report.Lost, File: "a_.._b_c", Reason: reasonNoReport}},
		"failed": {
			"path=/work/r.nsys-rep\nreason=FellBackUnprofiled\n" + strings.Replace(finished, "Finished", "Failed", 1),
			report.Report{State: report.Lost, File: "a_.._b_c", Reason: "FellBackUnprofiled"},
		},
		"sized": {
			"size=7\npath=/work/r.nsys-rep\n" + finished,
			report.Report{State: report.Ready, File: "a_.._b_c.nsys-rep", Path: "/work/r.nsys-rep", Size: 7},
		},
		"sized beyond sense": {
			"size=9223372036854775807\npath=/work/r.nsys-rep\n" + finished,
			report.Report{State: report.Ready, File: "a_.._b_c.nsys-rep", Path: "/work/r.nsys-rep"},
		},
		"relative": {"path=r.nsys-rep\n" + finished, report.Report{State: report.Lost, File: "a_.._b_c", Reason: reasonNoReport}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true)
			w.session("", nil, c.note)
			w.Scan()
			r := w.get()
			require.Equal(t, c.want, report.Report{State: r.State, File: r.File, Path: r.Path, Reason: r.Reason, Size: r.Size, SHA256: r.SHA256})
			require.NoDirExists(t, filepath.Join(w.dir, uid, inboxDir, folder))
		})
	}
}

func TestScan_HostileFiles_Lost(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	for name, put := range map[string]func(path string) error{
		"link": func(p string) error { return os.Symlink(outside, p) }, "pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
		"hard link": func(p string) error { return errors.Join(os.WriteFile(p+"x", []byte("x"), 0o600), os.Link(p+"x", p)) },
		"folder":    func(p string) error { return os.Mkdir(p, 0o700) },
		"sparse":    func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) },
		"empty":     func(p string) error { return os.WriteFile(p, nil, 0o600) }, "missing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			dir := w.session("", nil, finished)
			require.NoError(t, put(filepath.Join(dir, "report.nsys-rep")))
			w.Scan()
			require.Equal(t, report.Lost, w.get().State)
			require.NotEmpty(t, w.get().Reason)
			_, _, err := w.Content(uid, id)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.FileExists(t, outside)
		})
	}
}

func TestScan_RawFile_ImportedOrKept(t *testing.T) {
	for suffix, state := range map[string]report.State{readySuffix: report.Ready, failedSuffix: report.Raw} {
		w := newWorld(t, true)
		w.session("report.qdstrm", []byte("raw"), finished)
		w.Scan()
		require.Equal(t, report.Importing, w.get().State)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+suffix), []byte("x"), 0o600))
		w.Scan()
		require.Equal(t, state, w.get().State)
		f, _, err := w.Content(uid, id)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		left, _ := os.ReadDir(filepath.Join(w.dir, uid, spoolDir))
		require.Empty(t, left)
	}
}

func TestScan_InboxOverLimit_StoppedThenTruncated(t *testing.T) {
	w := newWorld(t, false)
	dir := w.session("report.qdstrm", bytes.Repeat([]byte("x"), 2<<20), strings.Replace(finished, "Finished", "Recording", 1))
	f, err := os.Open(filepath.Join(dir, "note"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	w.Scan()
	require.FileExists(t, filepath.Join(w.dir, uid, planDir, stopFile))
	w.now = w.now.Add(grace)
	w.Scan()
	info, err := os.Stat(filepath.Join(dir, "report.qdstrm"))
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.Equal(t, reasonFull, w.get().Reason)
}

// holding returns a function that returns the prepared claims.
func holding(uids ...string) func() (map[string]bool, error) {
	return func() (map[string]bool, error) {
		all := map[string]bool{}
		for _, uid := range uids {
			all[uid] = true
		}
		return all, nil
	}
}

// TestSweep_PreparedMeanwhile_Kept: a claim that is prepared, for the first time or again, while records are read is not garbage.
func TestSweep_PreparedMeanwhile_Kept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	other := claimed
	other.UID = "another"
	require.NoError(t, w.Release(uid))
	require.NoError(t, w.Sweep(func() (map[string]bool, error) {
		require.NoError(t, w.Prepare(claimed, nil))
		return nil, w.Prepare(other, nil)
	}))
	for _, one := range []string{uid, other.UID} {
		require.DirExists(t, filepath.Join(w.dir, one, inboxDir))
	}
	require.NoError(t, w.Sweep(holding(uid)))
	require.DirExists(t, filepath.Join(w.dir, uid))
	require.NoDirExists(t, filepath.Join(w.dir, other.UID))
	require.ErrorIs(t, w.Sweep(func() (map[string]bool, error) { return nil, errKilled }), errKilled)
	require.DirExists(t, filepath.Join(w.dir, uid))
}

func TestSweep_RetentionPassed_ReportAndFolderRemoved(t *testing.T) {
	w := newWorld(t, false)
	w.session("report.nsys-rep", []byte("content"), finished)
	w.Scan()
	w.reopen(false, disk.OS{})
	require.Len(t, w.List("", ""), 1)
	w.now = w.now.Add(2 * time.Hour)
	require.NoError(t, w.Sweep(holding()))
	require.NoDirExists(t, filepath.Join(w.dir, uid))
}

func BenchmarkPrepare(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir(), Files: disk.OS{}})
	require.NoError(b, err)
	for i := 0; b.Loop(); i++ {
		c := claimed
		c.UID = "c" + strconv.Itoa(i)
		require.NoError(b, s.Prepare(c, map[string][]byte{"run": make([]byte, 1024), "match": make([]byte, 16<<10)}))
	}
}
