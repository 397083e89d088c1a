package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
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

// roundTrip answers requests to nodes without a network.
type roundTrip func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestCommand_1000Nodes_OneReviewOneRequestEach: a command for 100,000 sessions, and for 1,000 named ones whose nodes are unknown, takes a
// bounded amount of the controller's memory. No other test runs at the same time.
func TestCommand_1000Nodes_OneReviewOneRequestEach(t *testing.T) {
	const nodes, each, most = 1000, 100, 64 << 20
	h := &heap{}
	var endpoints []Endpoint
	for i := range nodes {
		endpoints = append(endpoints, Endpoint{Node: fmt.Sprintf("n%04d", i), Address: fmt.Sprintf("n%04d:443", i)})
	}
	n := NewNodes(t.TempDir(), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid"))
	var requests atomic.Int64
	n.client.Transport = roundTrip(func(r *http.Request) *http.Response {
		requests.Add(1)
		defer h.measure()
		var of int
		_, err := fmt.Sscanf(r.URL.Host, "n%04d:443", &of)
		assert.NoError(t, err)
		var c session.Command
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		a := session.Accepted{Now: time.Now()}
		for i := range each {
			name := fmt.Sprintf("%08x-w%d-0123456789abcdef", of, i)
			if c.Selection != nil || slices.Contains(c.Sessions, name) {
				a.Names = append(a.Names, name)
			}
		}
		recorded := httptest.NewRecorder()
		answer(recorded, http.StatusOK, a)
		return recorded.Result()
	})
	runtime.GC()
	h.measure()
	base := h.highest.Load()
	var names []string
	for i := range session.MaxNames {
		names = append(names, fmt.Sprintf("%08x-w7-0123456789abcdef", i))
	}
	for target, accepted := range map[string]int{`"selection":{}`: nodes * each, `"sessions":["` + strings.Join(names, `","`) + `"]`: session.MaxNames} {
		h.highest.Store(0)
		requests.Store(0)
		r := &reviews{}
		handler := (&Server{Nodes: n, Users: headers{}, Access: NewDecisions(r, always("uid"))}).Handler()
		response, got := post(handler, "alice", commandsInTeam, commandFor(`"verb":"Stop",`+target))
		require.Equal(t, http.StatusCreated, response.Code)
		assert.Equal(t, accepted, got.Status.Accepted)
		assert.Len(t, got.Status.Names, session.MaxNames)
		assert.Empty(t, got.Status.SilentNodes)
		assert.Equal(t, 1, r.asked, "reviews")
		assert.EqualValues(t, nodes, requests.Load())
		more := int64(h.highest.Load()) - int64(base)
		assert.Less(t, more, int64(most), "%d MiB", more>>20)
		t.Logf("%d sessions: %d MiB over %d MiB", accepted, more>>20, base>>20)
	}
}
