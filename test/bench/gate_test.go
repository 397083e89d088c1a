package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGate_Shut_HoldsWhatIsNotAdmitted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	g := NewGate(http.DefaultTransport)
	client := &http.Client{Transport: g}
	get := func(path string) <-chan struct{} {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			response, err := client.Get(server.URL + path)
			if assert.NoError(t, err) {
				assert.NoError(t, response.Body.Close())
			}
		}()
		return answered
	}
	arrived := func(n int) {
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.requests) == n
		}, limit, time.Millisecond)
	}
	<-get("/open")
	g.Shut("GET /claim")
	<-get("/claim")
	second := get("/claim")
	arrived(3)
	<-get("/slices?watch=true")
	select {
	case <-second:
		assert.Fail(t, "a request passed the shut gate")
	default:
	}
	g.Open()
	<-second
	assert.Equal(t, []Request{
		{Method: "GET", Path: "/open"}, {Method: "GET", Path: "/claim", Needed: true}, {Method: "GET", Path: "/claim"},
	}, g.Take())
	assert.Empty(t, g.Take())
}

// If the plugin writes the status of an earlier claim during the next call, it reads that claim too. The budget must not admit this read.
func TestCost_StatusOfEarlierCallPending_NotAdmitted(t *testing.T) {
	n := newNode(t, wholeOnly)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	one := reference(0)
	require.NoError(t, n.plugin.Prepare(ctx, one))
	cost := n.cost(func() error {
		arrived := func() bool {
			n.gate.mu.Lock()
			defer n.gate.mu.Unlock()
			return len(n.gate.requests) > 0 || n.statuses.Stats().Pending == 0
		}
		assert.Eventually(t, arrived, limit, time.Millisecond)
		return n.plugin.Prepare(ctx, one)
	}, getClaim(one))
	assert.Empty(t, cmp.Diff(Cost{Reads: 1}, cost, later))
	require.NoError(t, n.plugin.Unprepare(ctx, one))
}

func TestNeededFirst_RequestsAfterTheAnswer_CountedApart(t *testing.T) {
	t.Parallel()
	cost := neededFirst([]Request{
		{Method: "GET", Needed: true}, {Method: "PATCH", Needed: true}, {Method: "GET"}, {Method: "PATCH"},
	})
	assert.Equal(t, Cost{Reads: 1, Writes: 1, Later: 2}, cost)
}
