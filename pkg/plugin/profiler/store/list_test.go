package store

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestList_ThousandsOfReports_CopiedOnce: a list blocks all others through the lock of the store, and a controller requests a list for each
// report that it does not know.
func TestList_ThousandsOfReports_CopiedOnce(t *testing.T) {
	w := newWorld(t, false)
	const claims, each, lists = 4, claimReports, 4
	for _, uid := range w.prepares("many", claims) {
		for i := range each {
			w.claims[uid].Reports = append(w.claims[uid].Reports, &report.Report{ID: fmt.Sprint(uid, "-", i), ClaimUID: uid, State: report.Ready})
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range lists {
		require.Len(t, w.List("many", ""), claims*each)
	}
	runtime.ReadMemStats(&after)
	copied := uint64(claims * each * unsafe.Sizeof(report.Report{}))
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/lists, copied*3/2, "bytes allocated for a list, of which %d are the reports", copied)
}
