package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGateHoldsWhatIsNotAdmitted(t *testing.T) {
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
		}, 10*time.Second, time.Millisecond)
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

func TestNeededFirst(t *testing.T) {
	t.Parallel()
	cost := neededFirst([]Request{
		{Method: "GET", Needed: true}, {Method: "PATCH", Needed: true}, {Method: "GET"}, {Method: "PATCH"},
	})
	assert.Equal(t, Cost{Reads: 1, Writes: 1, Later: 2}, cost)
}
