package store

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

var failed = strings.Replace(finished, "Finished", "Failed", 1)

// many creates sessions of a claim with a note each, and with the file of a report if content is set.
func (w *world) many(of string, from, to int, note, content string) {
	for i := from; i < to; i++ {
		dir := filepath.Join(w.dir, of, inboxDir, fmt.Sprintf("s%d-%016x", i, i))
		require.NoError(w.t, os.Mkdir(dir, 0o700))
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, "note"), []byte(note), 0o600))
		if content != "" {
			require.NoError(w.t, os.WriteFile(filepath.Join(dir, "report"+readySuffix), []byte(content), 0o600))
		}
	}
}

// states counts the reports of a namespace.
func (w *world) states(namespace string) map[report.State]int {
	all := map[report.State]int{}
	for _, r := range w.List(namespace, "") {
		all[r.State]++
	}
	return all
}

// prepares prepares a number of claims of a namespace.
func (w *world) prepares(namespace string, count int) (uids []string) {
	for i := range count {
		c := claimed
		c.UID, c.Namespace = fmt.Sprintf("%s-%d", namespace, i), namespace
		require.NoError(w.t, w.Prepare(c, nil))
		uids = append(uids, c.UID)
	}
	return uids
}

// TestScan_FailedSessions_NewestKept: sessions without files add a limited number of reports to an index, cost one write in a scan, and are
// counted.
func TestScan_FailedSessions_NewestKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	files := &writing{}
	w.reopen(false, files)
	roomy := claimed
	roomy.MaxBytes = 0
	require.NoError(t, w.Prepare(roomy, nil))
	const sessions = 200
	w.many(uid, 0, sessions, strings.Replace(failed, "exited=2000", fmt.Sprint("exited=", w.now.UnixNano()), 1), "")
	scans := 0
	for ; scans < 10 && len(w.names(inboxDir)) > 0; scans++ {
		w.Scan()
		require.LessOrEqual(t, len(w.List("", "")), claimLost)
	}
	assert.Equal(t, (sessions+claimLost-1)/claimLost, scans, "so many are taken over in each scan")
	assert.LessOrEqual(t, files.indexes, scans+2)
	assert.Equal(t, claimLost, w.states("")[report.Lost])
	assert.Equal(t, sessions-claimLost, w.claims[uid].Dropped)
	w.reopen(false, disk.OS{})
	assert.Equal(t, sessions-claimLost, w.claims[uid].Dropped, "it is in the index")
	assert.Empty(t, w.stopped(uid))
}

// TestScan_ManyFailedSessions_NotRead: this scan does not read notes of sessions that wait for the next scan.
func TestScan_ManyFailedSessions_NotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.roomy(0)
	recording := strings.Replace(finished, "Finished\nexited=2000", "Recording", 1)
	w.many(uid, 0, 2*claimLost, failed, "")
	inbox, err := untrusted.Open(filepath.Join(w.dir, uid, inboxDir))
	require.NoError(t, err)
	defer inbox.Close()
	w.many(uid, 1000, 1001, recording, "")
	done, err := w.Store.session(&copies{ctx: t.Context(), left: scanBytes, notes: w.notes(uid)}, uid, inbox, fmt.Sprintf("s%d-%016x", 1000, 1000))
	require.NoError(t, err)
	assert.False(t, done)
	assert.Empty(t, w.List("", ""), "the note was not read")
}

// TestLimit_DroppedReports_NoWrites: dropping reports of idle claims in a full namespace does not cost a durable write each.
func TestLimit_DroppedReports_NoWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	for _, of := range w.prepares("other", 40) {
		w.stores(claimLost/2, of, report.Lost)
		require.NoError(t, w.Release(of))
	}
	files := &writing{}
	w.Files = files
	w.Scan()
	w.Scan()
	assert.Len(t, w.List("other", ""), namespaceFileless)
	assert.Zero(t, files.indexes)
}

// names returns the entries of a folder of the claim.
func (w *world) names(dir string) (all []string) {
	entries, err := os.ReadDir(filepath.Join(w.dir, uid, dir))
	require.NoError(w.t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestScan_FailedSessions_ReadyKept: downloadable reports of a claim are not dropped.
func TestScan_FailedSessions_ReadyKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.many(uid, 0, 3, finished, "content")
	w.Scan()
	w.many(uid, 3, 100, failed, "")
	w.scans()
	assert.Equal(t, map[report.State]int{report.Ready: 3, report.Lost: claimLost}, w.states(""))
}

// TestScan_FolderRemoved_Bounded: sessions that a container begins and removes are limited like failed sessions.
func TestScan_FolderRemoved_Bounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.many(uid, 0, 2*claimLost, strings.Replace(finished, "Finished\nexited=2000", "Recording", 1), "")
	w.Scan()
	require.Equal(t, map[report.State]int{report.Recording: 2 * claimLost}, w.states(""))
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, uid, inboxDir)))
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, uid, inboxDir), 0o700))
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Lost: claimLost}, w.states(""))
}

// TestLimit_ReportsWithoutFile_BoundedOfNamespaceAndNode: even if namespaces flood the node, its reports are limited, and the reports of
// others stay.
func TestLimit_ReportsWithoutFile_BoundedOfNamespaceAndNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.many(uid, 0, 3, finished, "content")
	w.many(uid, 3, 10, failed, "")
	for n := range 6 {
		for _, of := range w.prepares(fmt.Sprintf("evil-%d", n), 20) {
			w.adds(of, claimLost, report.Lost)
		}
	}
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Ready: 3, report.Lost: 7}, w.states(claimed.Namespace))
	all := w.states("")
	assert.LessOrEqual(t, all[report.Lost], nodeFileless)
	assert.Greater(t, all[report.Lost], nodeFileless-10)
	assert.LessOrEqual(t, w.states("evil-0")[report.Lost], namespaceFileless)
}

// adds adds reports to a claim, in memory only.
func (w *world) adds(of string, count int, state report.State) {
	c := w.claims[of]
	for range count {
		ended := w.now
		c.Reports = append(c.Reports, &report.Report{ID: ReportID(of, fmt.Sprint("s", len(c.Reports))), ClaimUID: of, State: state, Ended: &ended})
	}
}

// TestLimit_ReportsElsewhere_LostGoFirst: reports that stay in their container are limited too, but are dropped after Lost ones.
func TestLimit_ReportsElsewhere_LostGoFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	uids := w.prepares("other", 20)
	for _, of := range uids {
		w.adds(of, 40, report.Ready)
		w.now = w.now.Add(time.Second)
		w.adds(of, 40, report.Lost)
	}
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Ready: 800, report.Lost: namespaceFileless - 800}, w.states("other"))
}

// TestScan_NamespaceHasManyReports_OthersStored: the number of small files is limited, and a namespace below its share has room.
func TestScan_NamespaceHasManyReports_OthersStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	for n := range 3 {
		for _, of := range w.prepares(fmt.Sprintf("evil-%d", n), 6) {
			w.adds(of, claimReports/2, report.Raw)
			for _, r := range w.claims[of].Reports {
				r.SHA256 = "00"
			}
		}
	}
	w.many("evil-0-0", 0, 10, finished, "x")
	w.many(uid, 0, 10, finished, "x")
	require.NoError(t, w.scan(&copies{ctx: t.Context(), files: disk.OS{}}, "evil-0-0"))
	require.NoError(t, w.scan(&copies{ctx: t.Context(), files: disk.OS{}}, uid))
	assert.Zero(t, w.states("evil-0")[report.Ready], "it has more than its share, and the node as many as it may")
	assert.Equal(t, map[report.State]int{report.Ready: 10}, w.states(claimed.Namespace))
}

// TestScan_ClaimHasManyReports_Stopped: there is no room for further recordings.
func TestScan_ClaimHasManyReports_Stopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.stores(claimReports, uid, report.Ready)
	w.many(uid, claimReports, claimReports+1, finished, "x")
	w.Scan()
	assert.Equal(t, claimReports, w.states("")[report.Ready])
	assert.Equal(t, []string{uid}, w.stopped(uid))
	require.NoError(t, w.Delete(uid, w.List("", "")[0].ID, report.Deletion{}))
	w.scans()
	w.scans()
	assert.Equal(t, claimReports, w.states("")[report.Ready], "the one that waited")
}

// TestOpen_ManyReportsWithoutFile_HeapBounded: excess reports from an earlier version, or of claims whose retention has passed, are
// dropped.
func TestOpen_ManyReportsWithoutFile_HeapBounded(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	const claims = 40
	long := strings.Repeat("a", untrusted.MaxField)
	for i := range claims {
		c := index{Schema: schema, Claim: Claim{UID: fmt.Sprintf("%08d-claim", i), Namespace: fmt.Sprint("evil", i%8), Retention: time.Hour}, Released: true}
		for j := range claimReports {
			c.Reports = append(c.Reports, &report.Report{
				ID: ReportID(c.Claim.UID, fmt.Sprintf("s%d-%016x", j, j)), State: report.Lost, Pod: long, Container: long, Process: long, File: long,
				Message: long, Ended: &now,
			})
		}
		raw, err := json.Marshal(c)
		require.NoError(t, err)
		require.NoError(t, os.Mkdir(filepath.Join(dir, c.Claim.UID), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, c.Claim.UID, indexFile), raw, 0o600))
	}
	for name, c := range map[string]struct {
		later time.Duration
		most  int
	}{"kept": {0, claims * claimLost}, "expired": {2 * time.Hour, 0}} {
		before := heap()
		s, err := Open(Options{Dir: dir, Files: disk.OS{}, Now: func() time.Time { return now.Add(c.later) }})
		require.NoError(t, err)
		took := int64(heap()) - int64(before)
		assert.Equal(t, c.most, len(s.List("", "")), name) //nolint:testifylint // all would be printed
		assert.Less(t, took, int64(8<<20), name)
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLevel_Uses_LargestCut: uses below the level are not reduced.
func TestLevel_Uses_LargestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		uses        []int
		limit, want int
	}{{nil, 10, 10}, {[]int{3, 4}, 10, 10}, {[]int{20}, 10, 10}, {[]int{1, 20, 20}, 11, 5}, {[]int{5, 5, 5}, 9, 3}} {
		assert.Equal(t, c.want, level(c.uses, c.limit), "%v", c.uses)
	}
}

// TestScan_ReleasedClaims_LeftOut: claims with completed reports cost a scan nothing, until they are prepared or unprepared again.
func TestScan_ReleasedClaims_LeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	files := &listing{removing: func() {}}
	w.reopen(true, files)
	w.session("report.qdstrm", []byte("raw"), finished)
	w.Scan()
	require.NoError(t, w.Release(uid))
	w.Scan()
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+readySuffix), []byte("x"), 0o600))
	w.Scan()
	require.Equal(t, report.Ready, w.get().State, "what is imported is waited for")
	stop := filepath.Join(w.dir, uid, planDir, stopFile)
	require.NoError(t, os.WriteFile(stop, nil, 0o600))
	w.many(uid, 1, 2, finished, "x")
	files.listed = nil
	w.Scan()
	assert.Empty(t, files.listed)
	assert.Len(t, w.names(inboxDir), 1)
	assert.FileExists(t, stop)
	w.claims[uid].Stopped = &w.now
	assert.False(t, w.active(), "nothing writes, and no inbox is emptied")
	w.claims[uid].Stopped = nil
	require.NoError(t, w.Sweep(holding(uid)))
	w.Scan()
	assert.Empty(t, w.names(inboxDir), "it is prepared after all")
	assert.NoFileExists(t, stop)
	w.many(uid, 2, 3, finished, "x")
	require.NoError(t, w.Release(uid))
	w.Scan()
	assert.Equal(t, map[report.State]int{report.Ready: 2}, w.states(""), "it is released again; the retention of the first has passed")
}
