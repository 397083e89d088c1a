package reports

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestList_ManyAtOnce_ConnectionsKept: a plugin refuses connections during too many concurrent handshakes. The concurrent requests about a
// namespace connect once and not each time, for answers of any length.
func TestList_ManyAtOnce_ConnectionsKept(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 50} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			connectionsKept(t, length)
		})
	}
}

func connectionsKept(t *testing.T, length int) {
	const rounds = 5
	var mu sync.Mutex
	connections, waiting, together := map[string]bool{}, 0, make(chan struct{})
	var all []report.Report
	for i := range length {
		all = append(all, stored("n0", "team", fmt.Sprintf("report-%02d", i), "x"))
	}
	a := newAuthority(t)
	address := a.standIn(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		connections[r.RemoteAddr] = true
		round := together
		if waiting++; waiting == runningCalls {
			waiting, together = 0, make(chan struct{})
			close(round)
		}
		mu.Unlock()
		<-round
		answer(w, http.StatusOK, map[string]any{"reports": all})
	})
	nodes := withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) {
		return []Endpoint{{Node: "n0", Address: address}}, nil
	}, always("uid")))
	for range rounds {
		var running sync.WaitGroup
		for range runningCalls {
			running.Go(func() {
				found, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
				assert.NoError(t, err)
				assert.Len(t, found.Items, length)
			})
		}
		running.Wait()
	}
	assert.Equal(t, runningCalls, len(connections), "connections of %d requests", rounds*runningCalls) //nolint:testifylint // all would be printed
}
