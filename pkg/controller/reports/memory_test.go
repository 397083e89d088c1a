package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// heap is the highest measured heap size, in bytes.
type heap struct{ highest atomic.Uint64 }

func (h *heap) measure() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for known := h.highest.Load(); m.HeapAlloc > known && !h.highest.CompareAndSwap(known, m.HeapAlloc); known = h.highest.Load() {
	}
}

// measured is a response of which only the size is kept.
type measured struct {
	header http.Header
	heap   *heap
	code   int
	size   int64
}

func (m *measured) Header() http.Header  { return m.header }
func (m *measured) WriteHeader(code int) { m.code = code }

func (m *measured) Write(b []byte) (int, error) {
	m.heap.measure()
	m.size += int64(len(b))
	return len(b), nil
}

// crowded serves a node with the maximum number of reports of the maximum size. It creates them while it answers.
func crowded(t *testing.T, a authority, name string, h *heap) string {
	t.Helper()
	long := strings.Repeat("a", 253)
	return a.standIn(t, func(w http.ResponseWriter, r *http.Request) {
		h.measure()
		first := 0
		if after := r.URL.Query().Get("after"); after != "" {
			_, err := fmt.Sscanf(after, "r%09d", &first)
			assert.NoError(t, err)
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		assert.NoError(t, err)
		_, _ = fmt.Fprint(w, `{"reports":[`)
		for i := first + 1; i <= min(first+limit, maxReports); i++ {
			at := time.Unix(1, 0).UTC()
			raw, err := json.Marshal(report.Report{
				ID: fmt.Sprintf("r%09d", i), Namespace: "team", Claim: "c", ClaimUID: "uid", Pod: long, Container: long, Process: long, File: long[:200],
				Message: long, Node: name, State: report.Lost, Reason: "ReportLost", Started: at, Ended: &at,
			})
			assert.NoError(t, err)
			if i > first+1 {
				_, _ = fmt.Fprint(w, ",")
			}
			if _, err := w.Write(raw); err != nil {
				return
			}
		}
		_, _ = fmt.Fprint(w, "]}")
	})
}

// TestList_ManyReports_MemoryBounded: a list without a limit over nodes with 20,000 reports each, 1.3 GB in total, takes a part of the
// controller's memory and is marked as incomplete. No other test runs at the same time.
func TestList_ManyReports_MemoryBounded(t *testing.T) {
	const nodes, most = 40, 64 << 20
	a, h := newAuthority(t), &heap{}
	var endpoints []Endpoint
	for i := range nodes {
		name := fmt.Sprintf("n%02d", i)
		endpoints = append(endpoints, Endpoint{Node: name, Address: crowded(t, a, name, h)})
	}
	s := &Server{
		Nodes: withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid"))), Users: headers{},
		Access: rights{"alice list reports team": true},
	}
	runtime.GC()
	h.measure()
	base := h.highest.Load()
	for _, query := range []string{"", "?limit=500", "?limit=20000"} {
		h.highest.Store(0)
		request := httptest.NewRequest(http.MethodGet, inTeam+query, nil)
		request.Header.Set("X-Remote-User", "alice")
		answer := &measured{header: http.Header{}, heap: h}
		s.Handler().ServeHTTP(answer, request)
		require.Equal(t, http.StatusOK, answer.code)
		assert.Less(t, h.highest.Load()-base, uint64(most), "of a list with %q: %d MiB", query, (h.highest.Load()-base)>>20)
		assert.Less(t, answer.size, int64(2*maxCost))
		assert.Greater(t, answer.size, int64(500<<10))
		t.Logf("%q: %d MiB over %d MiB, answer %d MiB", query, (int64(h.highest.Load())-int64(base))>>20, base>>20, answer.size>>20)
		if query == "" {
			assert.Contains(t, answer.header.Get("Warning"), "the list is incomplete: these nodes store more reports; set limit, and pass continue to list them: n00, n01")
		}
	}
}
