package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const piece = 64 << 10

// fills adds a claim to a namespace with reports of a piece each, a minute apart. The claim is no longer prepared.
func (w *world) fills(namespace string, count int) (of string) {
	of = w.prepares(namespace, 1)[0]
	w.stores(count, of, report.Ready)
	for i, r := range w.claims[of].Reports {
		ended := w.now.Add(time.Duration(i-60) * time.Minute / 2)
		r.Size, r.Ended = piece, &ended
		require.NoError(w.t, os.Truncate(filepath.Join(w.dir, of, reportsDir, stored(r)), piece))
	}
	require.NoError(w.t, w.Release(of))
	return of
}

// full returns a node of 16 pieces that two namespaces have filled.
func full(t *testing.T) (w *world, evicted *[]string) {
	w = newWorld(t, true)
	evicted = &[]string{}
	w.NodeBytes, w.Evicted = 16*piece, func(r report.Report) { *evicted = append(*evicted, r.ID) }
	w.fills("a", 8)
	w.fills("b", 8)
	w.Scan()
	w.Scan()
	require.Empty(t, *evicted, "no other namespace wants room")
	return w, evicted
}

// TestEvict_NodeFull_OldestOfOthersGo: a namespace can record and store reports on a node that others have filled, up to its fair share.
func TestEvict_NodeFull_OldestOfOthersGo(t *testing.T) {
	t.Parallel()
	w, evicted := full(t)
	w.roomy(0)
	oldest := []string{w.claims["a-0"].Reports[0].ID, w.claims["b-0"].Reports[0].ID}
	w.session("report.nsys-rep", bytes.Repeat([]byte("x"), piece), finished)
	w.Scan()
	require.Equal(t, report.Ready, w.get().State)
	require.Subset(t, oldest, *evicted)
	for i := range 10 {
		w.many(uid, i, i+1, finished, string(bytes.Repeat([]byte("x"), piece)))
		w.scans()
	}
	assert.Empty(t, w.stopped("a-0", "b-0"))
	assert.Subset(t, *evicted, oldest)
	assert.LessOrEqual(t, w.states("")[report.Ready], 16)
	for _, namespace := range []string{"a", "b"} {
		assert.Contains(t, []int{5, 6}, len(w.List(namespace, "")), "%s keeps its fair share", namespace)
	}
	assert.GreaterOrEqual(t, w.states(claimed.Namespace)[report.Ready], 4)
	for _, of := range []string{"a-0", "b-0"} {
		left, err := os.ReadDir(filepath.Join(w.dir, of, reportsDir))
		require.NoError(t, err)
		assert.Len(t, left, len(w.claims[of].Reports), "files go with their reports")
		assert.Equal(t, fmt.Sprint(of, "-s7"), w.claims[of].Reports[len(w.claims[of].Reports)-1].ID[:len(of)+3], "the newest stays")
	}
}

// TestEvict_RecordingWhileFull_NotStopped: a namespace that records gets room before its report is complete.
func TestEvict_RecordingWhileFull_NotStopped(t *testing.T) {
	t.Parallel()
	w, evicted := full(t)
	w.roomy(0)
	w.fill(2 * piece)
	w.scans()
	assert.Empty(t, w.stopped(uid))
	assert.NotEmpty(t, *evicted)
	assert.LessOrEqual(t, len(*evicted), 4)
}

// TestEvict_AboveFairShare_KeepsOthers: a namespace's demand beyond its share does not affect others.
func TestEvict_AboveFairShare_KeepsOthers(t *testing.T) {
	t.Parallel()
	w, evicted := full(t)
	w.roomy(0)
	w.session("report.nsys-rep", bytes.Repeat([]byte("x"), 6*piece), finished)
	w.Scan()
	assert.Equal(t, []any{report.Lost, reasonFull}, []any{w.get().State, w.get().Reason})
	w.prepares("a", 1)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "a-0", inboxDir, "file"), []byte("x"), 0o600))
	w.Scan()
	assert.Empty(t, *evicted)
	assert.Equal(t, []string{"a-0"}, w.stopped("a-0"))
}

// TestEvict_MuchMissing_FairShareStays: for any demand.
func TestEvict_MuchMissing_FairShareStays(t *testing.T) {
	t.Parallel()
	w, evicted := full(t)
	e := evictions{tally: tally{limit: w.NodeBytes, by: map[string]int64{"a": 8 * piece, "b": 8 * piece, "c": 0}}, missing: 100 * piece, of: size}
	require.True(t, w.evict(&e))
	assert.Len(t, *evicted, 6)
	assert.Len(t, w.List("a", ""), 5)
	assert.Len(t, w.List("b", ""), 5)
}

// TestEvict_ClaimFull_KeepsOthers: room on the node does not help a claim that has reached its own limit.
func TestEvict_ClaimFull_KeepsOthers(t *testing.T) {
	t.Parallel()
	w, evicted := full(t)
	w.roomy(piece)
	w.session("report.nsys-rep", bytes.Repeat([]byte("x"), 2*piece), finished)
	require.NoError(t, w.scan(&copies{ctx: t.Context(), files: w.Files}, uid))
	assert.Equal(t, []any{report.Lost, reasonFull}, []any{w.get().State, w.get().Reason})
	assert.Empty(t, *evicted)
}

// TestEvict_ManyReports_OldestGo: small files are evicted because of their number.
func TestEvict_ManyReports_OldestGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	evicted := 0
	w.Evicted = func(r report.Report) {
		evicted++
		assert.Contains(t, []string{"a-0", "a-1"}, r.ClaimUID, "those of the largest namespace")
	}
	for namespace, claims := range map[string]int{"a": 6, "b": 5} {
		for _, of := range w.prepares(namespace, claims) {
			w.adds(of, 700, report.Ready)
			for _, r := range w.claims[of].Reports {
				ended := w.now.Add(time.Hour)
				if of == "a-0" || of == "a-1" {
					ended = w.now
				}
				r.SHA256, r.Ended = "00", &ended
			}
		}
	}
	w.fill(1)
	w.Scan()
	assert.Equal(t, 11*700-(nodeReports-nodeReports/10), evicted)
}

// TestImported_RawAboveHalf_Ready: the raw file is deleted with the import, and does not count in addition to its report.
func TestImported_RawAboveHalf_Ready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.session("report.qdstrm", make([]byte, 700<<10), finished)
	w.Scan()
	require.Equal(t, report.Importing, w.get().State)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, uid, spoolDir, id+readySuffix), make([]byte, 900<<10), 0o600))
	w.Scan()
	assert.Equal(t, report.Ready, w.get().State)
	assert.EqualValues(t, 900<<10, w.get().Size)
}
