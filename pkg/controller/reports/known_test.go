package reports

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// TestFind_NodeWasSilent_NamedAndAskedAgainLater: a report is not reported as missing while its node is silent.
func TestFind_NodeWasSilent_NamedAndAskedAgainLater(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	address := a.standIn(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored("n0", "team", "of-n0", "x")}})
	})
	endpoint := Endpoint{Node: "n0", Address: address}
	nodes := withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return []Endpoint{endpoint}, nil }, always("uid")))
	now := time.Now()
	nodes.now = func() time.Time { return now }
	nodes.quiet.put(endpoint, now)
	_, found, silent, err := find[reportItem](t.Context(), nodes, "team", "of-n0", seats.Party{})
	require.NoError(t, err)
	assert.False(t, found)
	assert.Equal(t, []string{"n0"}, silent)
	now = now.Add(quietTime)
	_, found, silent, err = find[reportItem](t.Context(), nodes, "team", "of-n0", seats.Party{})
	require.NoError(t, err)
	assert.True(t, found)
	assert.Empty(t, silent)
}

// TestDelete_Listed_OneNodeAsked: deleting a listed report takes two requests to its node, and none to others.
func TestDelete_Listed_OneNodeAsked(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	a := newAuthority(t)
	var endpoints []Endpoint
	for i := range 10 {
		name := fmt.Sprintf("n%d", i)
		gone := false
		endpoints = append(endpoints, Endpoint{Node: name, Address: a.standIn(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked[name]++
			reports := []report.Report{}
			if !gone {
				reports = append(reports, stored(name, "team", "of-"+name, "x"))
			}
			if r.Method == http.MethodDelete {
				gone = true
				w.WriteHeader(http.StatusNoContent)
				return
			}
			answer(w, http.StatusOK, map[string]any{"reports": reports})
		})})
	}
	server := api(t, func(context.Context) ([]Endpoint, error) { return endpoints, nil }, a.issue(t, "prism-controller"))
	response, _ := do(t, server, http.MethodGet, "alice", inTeam)
	require.Equal(t, http.StatusOK, response.StatusCode)
	for i := range 6 {
		response, body := do(t, server, http.MethodDelete, "alice", fmt.Sprintf("%s/of-n%d", inTeam, i))
		require.Equal(t, http.StatusOK, response.StatusCode, body)
	}
	mu.Lock()
	for i, e := range endpoints {
		want := 1
		if i < 6 {
			want = 3
		}
		assert.Equal(t, want, asked[e.Node], e.Node)
	}
	mu.Unlock()
	response, _ = do(t, server, http.MethodGet, "alice", inTeam+"/of-n0")
	assert.Equal(t, http.StatusNotFound, response.StatusCode)
}

// TestRequests_HungNode_AskedOnce: within its quiet time, for any request: one request waits for each verb, later ones do not.
func TestRequests_HungNode_AskedOnce(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]struct {
		method, path string
		waits        time.Duration
	}{
		"list":    {http.MethodGet, inTeam, nodeTimeout},
		"get":     {http.MethodGet, inTeam + "/other", nodeTimeout},
		"delete":  {http.MethodDelete, inTeam + "/a", nodeTimeout},
		"content": {http.MethodGet, inTeam + "/a/content", headerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipes(t)
				var hangs atomic.Bool
				p.standIn("n0:443", func(w http.ResponseWriter, r *http.Request) {
					if hangs.Load() || !strings.HasSuffix(r.URL.Path, "/reports") {
						<-r.Context().Done()
						return
					}
					answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored("n0", "team", "a", "content")}})
				})
				handler := apiOf(p.asking(Endpoint{Node: "n0", Address: "n0:443"}))
				ask := func(method, path string) (int, time.Duration) {
					request := httptest.NewRequest(method, path, http.NoBody)
					request.Header.Set("X-Remote-User", "alice")
					response, start := httptest.NewRecorder(), time.Now()
					handler.ServeHTTP(response, request)
					return response.Code, time.Since(start)
				}
				code, _ := ask(http.MethodGet, inTeam+"/a")
				require.Equal(t, http.StatusOK, code)
				hangs.Store(name == "list" || name == "get")
				_, waited := ask(first.method, first.path)
				assert.Equal(t, first.waits, waited)
				for _, again := range [][2]string{
					{http.MethodGet, inTeam}, {http.MethodGet, inTeam + "/a"}, {http.MethodGet, inTeam + "/unknown"}, {http.MethodDelete, inTeam + "/a"},
					{http.MethodGet, inTeam + "/a/content"},
				} {
					code, waited := ask(again[0], again[1])
					assert.Zero(t, waited, again)
					if again[1] != inTeam {
						assert.Equal(t, http.StatusServiceUnavailable, code, again)
					}
				}
			})
		})
	}
}
