package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// stopped returns the claims whose recording is stopped, according to the files that their containers read.
func (w *world) stopped(uids ...string) (all []string) {
	for _, uid := range uids {
		if _, err := os.Stat(filepath.Join(w.dir, uid, planDir, stopFile)); err == nil {
			all = append(all, uid)
		}
	}
	return all
}

// scans scans, and again after the time to stop or to resume a claim.
func (w *world) scans() {
	w.Scan()
	for range 3 {
		w.now = w.now.Add(grace)
		w.Scan()
	}
}

// TestLimit_ReportDeleted_RecordedAgain: once there is room, and after the store was opened again, processes are recorded.
func TestLimit_ReportDeleted_RecordedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.session("report.nsys-rep", make([]byte, 1<<20), finished)
	w.scans()
	require.Equal(t, report.Ready, w.get().State)
	require.Empty(t, w.stopped(uid), "the limit is reached, and not passed")
	inbox := filepath.Join(w.dir, uid, inboxDir, "something")
	require.NoError(t, os.WriteFile(inbox, []byte("x"), 0o600))
	w.Scan()
	require.Equal(t, []string{uid}, w.stopped(uid))
	w.scans()
	require.Equal(t, []string{uid}, w.stopped(uid), "the report still takes all")
	w.reopen(false, disk.OS{})
	require.NoError(t, w.Delete(uid, id, report.Deletion{}))
	w.seen = nil
	w.Scan()
	require.Empty(t, w.stopped(uid))
	assert.Len(t, w.seen, 1, "the claim's status must say so")
	_, stopped := w.Of(uid)
	assert.False(t, stopped)
}

// TestLimit_StoppedWithRoom_NotTruncated: a container that removed enough data keeps the rest, which may be a report that could not be
// stored yet.
func TestLimit_StoppedWithRoom_NotTruncated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	inbox := filepath.Join(w.dir, uid, inboxDir, "something")
	require.NoError(t, os.WriteFile(inbox, make([]byte, 2<<20), 0o600))
	w.Scan()
	require.Equal(t, []string{uid}, w.stopped(uid))
	require.NoError(t, os.Truncate(inbox, 1<<10))
	w.scans()
	assert.Empty(t, w.stopped(uid))
	info, err := os.Stat(inbox)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<10, info.Size())
}

// TestLimit_NamespaceTakesHalf_OthersRecorded: for any number of claims in a namespace.
func TestLimit_NamespaceTakesHalf_OthersRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.NodeBytes = 1 << 20
	for i := range 4 {
		greedy := Claim{UID: fmt.Sprintf("greedy-%d", i), Namespace: "other", Name: "a", Node: "n1", MaxBytes: 1 << 20}
		require.NoError(t, w.Prepare(greedy, nil))
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, greedy.UID, inboxDir, "file"), bytes.Repeat([]byte("x"), 200<<10), 0o600))
	}
	for range 3 {
		w.Scan()
	}
	assert.NotEmpty(t, w.stopped("greedy-0", "greedy-1", "greedy-2", "greedy-3"))
	w.session("report.nsys-rep", make([]byte, 400<<10), finished)
	w.scans()
	assert.Empty(t, w.stopped(uid))
	assert.Equal(t, report.Ready, w.get().State)
}

// TestLimit_NodeFull_LargestStopped: the claim whose containers write most.
func TestLimit_NodeFull_LargestStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.NodeBytes = 1 << 20
	for i, namespace := range []string{"a", "b", "c"} {
		claim := Claim{UID: "uid-" + namespace, Namespace: namespace, Name: "a", Node: "n1"}
		require.NoError(t, w.Prepare(claim, nil))
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, claim.UID, inboxDir, "file"), make([]byte, 350<<10+i<<16), 0o600))
	}
	w.Scan()
	assert.Equal(t, []string{"uid-c"}, w.stopped("uid-a", "uid-b", "uid-c"))
	w.scans()
	assert.Empty(t, w.stopped("uid-a", "uid-b", "uid-c"), "what it wrote was truncated")
}

// TestScan_FileStillOpen_TakesNoSpace: a file that a process of the container holds open is emptied before it is removed.
func TestScan_FileStillOpen_TakesNoSpace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	dir := w.session("report.nsys-rep", []byte("content"), finished)
	f, err := os.Create(filepath.Join(dir, "other"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	w.Scan()
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Zero(t, info.Size())
	assert.Equal(t, report.Ready, w.get().State)
}

// TestCollect_NoImporter_RawAfterLimit: a raw file does not wait forever for a missing importer.
func TestCollect_NoImporter_RawAfterLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.session("report.qdstrm", []byte("raw"), finished)
	w.Scan()
	w.now = w.now.Add(importLimit - time.Minute)
	w.Scan()
	require.Equal(t, report.Importing, w.get().State)
	w.now = w.now.Add(2 * time.Minute)
	w.Scan()
	require.Equal(t, []any{report.Raw, reasonNoImport}, []any{w.get().State, w.get().Reason})
}

// TestScan_Message_KeptEscaped: the reason why there is no report, in the words of the supervisor or the importer.
func TestScan_Message_KeptEscaped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.session("", nil, "message=nsys\x1b[1m ended\n"+strings.Replace(finished, "Finished", "Failed", 1))
	w.Scan()
	assert.Equal(t, "nsys_[1m ended", w.get().Message)

	w = newWorld(t, true)
	w.session("report.qdstrm", []byte("raw"), finished)
	w.Scan()
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+failedSuffix), []byte("Wrong event order\n"), 0o600))
	w.Scan()
	assert.Equal(t, "Wrong event order", w.get().Message)
}
