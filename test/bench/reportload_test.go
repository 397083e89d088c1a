package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inMemory answers requests without a network.
type inMemory struct{ http.HandlerFunc }

func (h inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	h.HandlerFunc(recorder, r)
	return recorder.Result(), nil
}

// userOf returns a user with this number of reports. The handler answers as the API.
func userOf(reports int, answer http.HandlerFunc) *reportUser {
	u := &reportUser{client: &http.Client{Transport: inMemory{answer}}, namespace: "team", url: "https://api/reports"}
	for i := range reports {
		u.names = append(u.names, fmt.Sprintf("report-%d", i))
	}
	return u
}

// list returns the body of a list with this number of reports.
func list(reports int) string {
	return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{},`, reports), ",") + `]}`
}

// TestLoad_AnyAnswer_NextRequestSent: a refusal delays no request of the load, and it never deletes a report that it downloads.
func TestLoad_AnyAnswer_NextRequestSent(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const enough = 20
	var mu sync.Mutex
	seen, deleted := map[string]int{}, map[string]bool{}
	u := userOf(keptReports+2, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		name, content := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/reports/"), "/content")
		kind, code := "list", http.StatusOK
		switch {
		case content:
			kind, code = "download", http.StatusTooManyRequests
			w.Header().Set("Retry-After", "3600")
			assert.False(t, deleted[name], name)
		case r.Method == http.MethodDelete:
			kind = "delete"
			if deleted[name] {
				code = http.StatusNotFound
			}
			deleted[name] = true
		}
		seen[kind]++
		w.WriteHeader(code)
		if min(seen["list"], seen["download"], seen["delete"]) == enough {
			stop()
		}
	})
	counted := u.load(ctx)
	// Requests that the end aborted do not count: at most one of each client.
	for kind, name := range []string{"list", "download", "delete"} {
		n := 0
		for _, one := range counted[kind] {
			n += one
		}
		assert.LessOrEqual(t, n, seen[name], name)
		assert.Greater(t, n, seen[name]-loadWorkers-1, name)
	}
	assert.Equal(t, counted[listing].done(), counted[listing][http.StatusOK])
	assert.Zero(t, counted[downloading].done())
	assert.NotZero(t, counted[downloading][http.StatusTooManyRequests])
	assert.LessOrEqual(t, counted[deleting].done(), 2, "there are two reports to delete")
	assert.NotZero(t, counted[deleting][http.StatusNotFound])
	assert.Len(t, deleted, 2)
}

// TestTimes_RefusedOrIncomplete_UntilTheListIsComplete: the time of a user includes all requests until the list is complete.
func TestTimes_RefusedOrIncomplete_UntilTheListIsComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		u := userOf(3, func(w http.ResponseWriter, _ *http.Request) {
			n++
			switch n {
			case 1:
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusTooManyRequests)
			case 2:
				_, _ = io.WriteString(w, list(2))
			default:
				_, _ = io.WriteString(w, list(3))
			}
		})
		took, err := u.times(t.Context(), 5*time.Second)
		require.NoError(t, err)
		assert.Equal(t, Samples{3*time.Second + askAgain, 0, 0, 0, 0}, took)
	})
}

func TestComplete_NeverComplete_SaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := userOf(3, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "user cannot list")
		})
		start := time.Now()
		assert.EqualError(t, u.complete(t.Context(), time.Minute),
			"listing the reports of namespace team: context deadline exceeded: 403 Forbidden: user cannot list")
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

// TestListed_Rows_SlowestComparedWithTheBuildBefore: the row compares p99 with p99.
func TestListed_Rows_SlowestComparedWithTheBuildBefore(t *testing.T) {
	t.Parallel()
	before := listed{alone: Samples{2, 4}, loaded: Samples{time.Second, 5 * time.Second}, answers: [requestKinds]answers{{200: 3}, {206: 4}, {200: 5}}}
	now := listed{
		alone: Samples{2, 4}, loaded: Samples{time.Millisecond, time.Second},
		answers: [requestKinds]answers{{200: 30, 429: 7}, {200: 40, 429: 70, 0: 2}, {200: 50, 503: 1, 404: 9}},
	}
	r := Report{}
	r.Add("lists", "build before", now.rows(before, "build before")...)
	text := table(t, r)
	for _, want := range []string{
		"| list of B, with the requests of A (2) | 1.00 ms | 1000 ms | 5000 ms at p99 | 0.20 | ≤ 0.20 at p99 |",
		"| list of B, with the requests of A: build before (2) | 1000 ms | 5000 ms |",
		"| requests of A that were carried out: build before | 12 (3 lists, 4 downloads, 5 deletions) |",
		"| requests of A that were carried out | 120 (30 lists, 40 downloads, 50 deletions) |",
		"| requests of A that were refused, with code 429 | 77 |",
		"| requests of A with other answers | 12 (0: 2, 404: 9, 503: 1) |",
		"| requests of A with other answers: build before | 0 |",
	} {
		assert.Contains(t, text, want)
	}
}
