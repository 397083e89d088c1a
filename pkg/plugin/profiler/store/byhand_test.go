package store

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const waitFolder = "w42-0123456789abcdef"

// wait creates the folder of a process that waits.
func (w *world) wait(name string) string {
	dir := filepath.Join(w.dir, uid, inboxDir, name)
	require.NoError(w.t, os.MkdirAll(dir, 0o700))
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, "note"), []byte("pid=7\nstate=Waiting\n"), 0o600))
	return dir
}

// TestScan_CancelledRecording_NoReport: a recording that was listed is dropped without becoming Lost, also if the process is killed between
// the index and the removal of the folder.
func TestScan_CancelledRecording_NoReport(t *testing.T) {
	t.Parallel()
	cancelled := strings.Replace(finished, "Finished", "Cancelled", 1)
	for _, listed := range []bool{false, true} {
		for point, died := 0, true; died; point++ {
			w := newWorld(t, true)
			dir := w.session("report.qdstrm", []byte("raw"), recordingNote)
			if listed {
				w.supervised(folder)
				w.Scan()
				require.Equal(t, report.Recording, w.get().State)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte(cancelled), 0o600))
			calls := point
			w.reopen(true, dying{left: &calls})
			w.Scan()
			died = calls < 0
			w.reopen(true, disk.OS{})
			w.Scan()
			w.now = w.now.Add(2 * untrusted.Rest)
			w.Scan()
			assert.Empty(t, w.List("", ""), "fault point %d", point)
			assert.NotContains(t, w.seen, report.Lost)
			left, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			assert.Empty(t, left)
			spooled, _ := os.ReadDir(filepath.Join(w.dir, uid, spoolDir))
			assert.Empty(t, spooled)
		}
	}
}

// TestScan_CancelledAfterTheReport_Kept: a container cannot remove the report of a complete recording.
func TestScan_CancelledAfterTheReport_Kept(t *testing.T) {
	t.Parallel()
	w := recorded(t)
	w.session("", nil, "state=Cancelled\n")
	w.Scan()
	assert.Equal(t, report.Ready, w.get().State)
	assert.NoDirExists(t, filepath.Join(w.dir, uid, inboxDir, folder))
}

// TestScan_CancelledBesideAFileOfItsNewName_Removed: a container cannot keep the folder by taking the name.
func TestScan_CancelledBesideAFileOfItsNewName_Removed(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"folder": func(p string) error { return os.MkdirAll(filepath.Join(p, "x"), 0o700) },
		"file":   func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		w := newWorld(t, false)
		dir := w.session("", nil, "state=Cancelled\n")
		require.NoError(t, put(filepath.Join(filepath.Dir(dir), waitFolder)), name)
		w.Scan()
		assert.NoDirExists(t, dir, name)
		assert.Empty(t, w.List("", ""), name)
	}
}

func TestScan_WaitingProcess_RemovedOnceItExited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	dir := w.wait(waitFolder)
	w.Scan()
	assert.DirExists(t, dir, "the process may be about to lock its note")
	held := w.supervised(waitFolder)
	w.now = w.now.Add(2 * untrusted.Rest)
	w.Scan()
	assert.DirExists(t, dir)
	assert.Empty(t, w.List("", ""), "a process that waits has no report")
	require.NoError(t, held.Close())
	w.Scan()
	assert.NoDirExists(t, dir)
}

// TestScan_ReleasedClaim_WaitingProcessesRemoved: they do not keep the claim from being at rest, regardless of their number.
func TestScan_ReleasedClaim_WaitingProcessesRemoved(t *testing.T) {
	t.Parallel()
	w := recorded(t)
	for i := range 2 * MaxWaits {
		w.wait(fmt.Sprintf("w%d-%016x", i, i))
	}
	require.NoError(t, w.Release(uid))
	for _, left := range []int{MaxWaits, 0} {
		w.Scan()
		there, err := os.ReadDir(filepath.Join(w.dir, uid, inboxDir))
		require.NoError(t, err)
		assert.Len(t, there, left)
	}
	w.Scan()
	assert.True(t, w.claims[uid].rests())
}

// TestLimit_StoreFull_AnswersKept: the command that ended the recording has an answer.
func TestLimit_StoreFull_AnswersKept(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int64{4 << 10: 4 << 10, 4<<10 + 1: 0} {
		w := newWorld(t, false)
		path := filepath.Join(w.wait(waitFolder), "answers")
		w.supervised(waitFolder)
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		w.fill(2 << 20)
		w.Scan()
		w.now = w.now.Add(grace + time.Second)
		w.Scan()
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want, info.Size(), "of %d bytes", size)
	}
}

// onDemand returns a world whose claim is armed on demand, and its plan.
func onDemand(t *testing.T) (*world, Claim, map[string][]byte) {
	t.Helper()
	w := newWorld(t, false)
	c, plan := claimed, map[string][]byte{"run": []byte("a"), matchFile: []byte("all")}
	c.UID, c.ByHand = "other", ByHand{Waits: true, OnDemand: true}
	w.Disarmed = []byte("none")
	require.NoError(t, w.Prepare(c, plan))
	return w, c, plan
}

func (w *world) match(c Claim) string {
	content, err := os.ReadFile(filepath.Join(w.dir, c.UID, planDir, matchFile))
	require.NoError(w.t, err)
	return string(content)
}

// restart opens the store again, like the next process.
func (w *world) restart() {
	disarmed := w.Disarmed
	w.reopen(false, disk.OS{})
	w.Disarmed = disarmed
}

func TestArm_PreparedAgain_Kept(t *testing.T) {
	t.Parallel()
	w, c, plan := onDemand(t)
	assert.Equal(t, "none", w.match(c))
	for _, armed := range []bool{true, false, true} {
		want := map[bool]string{true: "all", false: "none"}[armed]
		require.NoError(t, w.Arm(c.UID, armed, plan[matchFile]))
		for range 2 {
			assert.Equal(t, want, w.match(c))
			w.restart()
			require.NoError(t, w.Prepare(c, plan))
			assert.Equal(t, armed, w.Prepared("", "")[1].Armed)
		}
	}
	require.NoError(t, os.Remove(filepath.Join(w.dir, c.UID, planDir, matchFile)))
	require.NoError(t, w.Prepare(c, plan))
	assert.Equal(t, "all", w.match(c), "a reboot does not disarm")

	require.NoError(t, w.Release(c.UID))
	require.ErrorIs(t, w.Arm(c.UID, true, nil), fs.ErrNotExist)
	w.following = true
	require.ErrorIs(t, w.Arm(c.UID, true, nil), ErrFollowing)
	require.ErrorIs(t, w.Leads(), ErrFollowing)
}

// TestArm_KilledAnywhere_DoneByTheNextCommand: after a failure the claim is not reported as armed.
func TestArm_KilledAnywhere_DoneByTheNextCommand(t *testing.T) {
	t.Parallel()
	for point, died := 0, true; died; point++ {
		w, c, plan := onDemand(t)
		left := point
		w.reopen(false, dying{left: &left})
		w.Disarmed = []byte("none")
		err := w.Arm(c.UID, true, plan[matchFile])
		died = left < 0
		assert.Equal(t, !died, w.Prepared("", "")[1].Armed, "fault point %d", point)
		assert.Equal(t, died, err != nil)
		w.restart()
		require.NoError(t, w.Arm(c.UID, true, plan[matchFile]))
		assert.Equal(t, "all", w.match(c))
		assert.True(t, w.Prepared("", "")[1].Armed)
	}
}

// TestPrepared_Claims_OfTheNamespace: like reports, claims of an older namespace of that name are omitted, and released claims.
func TestPrepared_Claims_OfTheNamespace(t *testing.T) {
	t.Parallel()
	w, c, _ := onDemand(t)
	w.claims[uid].NamespaceUID = "first"
	for of, want := range map[[2]string][]string{
		{"", ""}: {uid, c.UID}, {"team", ""}: {uid, c.UID}, {"team", "first"}: {uid, c.UID}, {"team", "second"}: {c.UID}, {"another", ""}: nil,
	} {
		var got []string
		for _, p := range w.Prepared(of[0], of[1]) {
			got = append(got, p.UID)
		}
		assert.Equal(t, want, got, of)
	}
	info, err := os.Stat(w.Prepared("", "")[1].Control)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), "containers watch it")
	assert.NoDirExists(t, w.Prepared("", "")[0].Control)
	require.NoError(t, w.Release(uid))
	assert.Len(t, w.Prepared("", ""), 1)
}

// TestPlanned_CommandsReplaceFiles_Unchanged: the age of a claim decides to which namespace it belongs.
func TestPlanned_CommandsReplaceFiles_Unchanged(t *testing.T) {
	t.Parallel()
	w, c, _ := onDemand(t)
	before := w.planned(c.UID)
	later := time.Now().Add(time.Hour)
	for _, name := range []string{matchFile, "control"} {
		require.NoError(t, os.Chtimes(filepath.Join(w.dir, c.UID, planDir, name), later, later))
	}
	assert.WithinDuration(t, before, w.planned(c.UID), time.Minute)
}

// TestPlanned_NoPlan_AgeOfInbox: a claim whose containers are not profiled has no plan.
func TestPlanned_NoPlan_AgeOfInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	of, before := w.prepares("other", 1)[0], w.now.Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(w.dir, of, inboxDir), before, before))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, of, planDir, stopFile), nil, 0o600))
	assert.WithinDuration(t, before, w.planned(of), time.Second)
}
