package reports

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// standIn serves a node with a plugin of another version.
func (a authority) standIn(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	return standInWith(t, a.issue(t, config.ReportsServerName), handler)
}

// standInWith serves such a node with a certificate.
func standInWith(t testing.TB, certificate string, handler http.HandlerFunc) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(certificate, "tls.crt"), filepath.Join(certificate, "tls.key"))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// fleet returns nodes with these numbers of reports. One of them is a plugin of an earlier version, without pages.
func fleet(t *testing.T, counts ...int) (nodes *Nodes, names []string) {
	t.Helper()
	a := newAuthority(t)
	certificate := a.issue(t, config.ReportsServerName)
	var endpoints []Endpoint
	for i, count := range counts {
		f, name := &fakeNode{}, fmt.Sprintf("n%02d", i)
		for j := range count {
			f.reports = append(f.reports, stored(name, "team", fmt.Sprintf("r%02d-%04d", i, j), ""))
			names = append(names, f.reports[j].ID)
		}
		e := Endpoint{Node: name}
		if i == 1 {
			e.Address = a.standIn(t, func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusOK, map[string]any{"reports": f.List("", "")})
			})
		} else {
			e.Address = f.listen(t, certificate)
		}
		endpoints = append(endpoints, e)
	}
	slices.Reverse(endpoints)
	return withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid"))), names
}

// pages follows a list to its end and returns the names on each page.
func pages(t *testing.T, server *httptest.Server, query url.Values, accept string) (all [][]string) {
	t.Helper()
	for range 1000 {
		response, body := do(t, server, http.MethodGet, "alice", inTeam+"?"+query.Encode(), "Accept", accept)
		require.Equal(t, http.StatusOK, response.StatusCode, body)
		require.Empty(t, response.Header.Get("Warning"))
		var page struct {
			metav1.ListMeta `json:"metadata"`
			Items           []metav1.PartialObjectMetadata
			Rows            []struct{ Object metav1.PartialObjectMetadata }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		names := []string{}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		for _, row := range page.Rows {
			names = append(names, row.Object.Name)
		}
		all = append(all, names)
		if page.Continue == "" {
			return all
		}
		query.Set("continue", page.Continue)
	}
	require.Fail(t, "the list has no end")
	return nil
}

// TestList_Pages_EachReportOnceInOrder: for any limit, form and selection.
func TestList_Pages_EachReportOnceInOrder(t *testing.T) {
	t.Parallel()
	nodes, names := fleet(t, 3, 150, 0, 200, 64, 1, 0)
	server := serveAPI(t, nodes)
	for _, accept := range []string{"application/json", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
		for _, limit := range []int{1 << 20, 500, 64, 50, 7} {
			got := pages(t, server, url.Values{"limit": {fmt.Sprint(limit)}}, accept)
			assert.Equal(t, names, slices.Concat(got...), "limit %d as %s", limit, accept)
			for _, page := range got {
				assert.LessOrEqual(t, len(page), limit)
			}
			assert.LessOrEqual(t, len(got), len(names)/limit+2)
		}
	}
	got := pages(t, server, url.Values{"limit": {"2"}, "fieldSelector": {"metadata.name!=r01-0149,spec.node=n01"}}, "")
	assert.Equal(t, names[3:152], slices.Concat(got...))
	got = pages(t, server, url.Values{"limit": {"2"}, "fieldSelector": {"metadata.name=r03-0199"}}, "")
	assert.Equal(t, []string{"r03-0199"}, slices.Concat(got...))
	assert.Equal(t, names, slices.Concat(pages(t, server, url.Values{}, "")...))
}

// TestList_Continue_CheckedStrictly: tokens come from users.
func TestList_Continue_CheckedStrictly(t *testing.T) {
	t.Parallel()
	nodes, names := fleet(t, 3, 3)
	server := serveAPI(t, nodes)
	ask := func(token string) (int, string) {
		response, body := do(t, server, http.MethodGet, "alice", inTeam+"?limit=2&continue="+url.QueryEscape(token))
		return response.StatusCode, body
	}
	for name, raw := range map[string]string{
		"not JSON":          "x",
		"another namespace": `{"v":1,"namespace":"other","node":"n00"}`,
		"all namespaces":    `{"v":1,"namespace":"","node":"n00"}`,
		"no node":           `{"v":1,"namespace":"team"}`,
		"a node's name":     `{"v":1,"namespace":"team","node":"../n00"}`,
		"a key":             `{"v":1,"namespace":"team","node":"n00","after":"a&limit=1"}`,
		"a long key":        `{"v":1,"namespace":"team","node":"n00","after":"` + strings.Repeat("a", 127) + `"}`,
		"another field":     `{"v":1,"namespace":"team","node":"n00","x":1}`,
		"a count":           `{"v":1,"namespace":"team","node":"n00","read":-1}`,
		"a large count":     `{"v":1,"namespace":"team","node":"n00","read":20001}`,
		"no version":        `{"namespace":"team","node":"n00"}`,
		"large":             `{"v":1,"namespace":"team","node":"n00"}` + strings.Repeat(" ", maxToken),
	} {
		code, body := ask(base64.RawURLEncoding.EncodeToString([]byte(raw)))
		assert.Equal(t, http.StatusBadRequest, code, "%s: %s", name, body)
	}
	code, _ := ask("%%%")
	assert.Equal(t, http.StatusBadRequest, code)
	code, body := ask(base64.RawURLEncoding.EncodeToString([]byte(`{"v":2,"namespace":"team","more":1}`)))
	assert.Equal(t, http.StatusGone, code)
	assert.Contains(t, body, `"reason":"Expired"`)
	gone, err := Position{Node: "n00-gone", After: "z", Read: 1}.encode(reportKind, "team")
	require.NoError(t, err)
	code, body = ask(gone)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, names[3], "what is behind a node that is gone")
	for _, limit := range []string{"-1", "x", "1.5"} {
		response, _ := do(t, server, http.MethodGet, "alice", inTeam+"?limit="+limit)
		assert.Equal(t, http.StatusBadRequest, response.StatusCode, limit)
	}
}

// TestList_EarlierPlugin_TooLargeNamed: without pages, the answer of a plugin can be larger than the limit.
func TestList_EarlierPlugin_TooLargeNamed(t *testing.T) {
	t.Parallel()
	nodes, _ := fleet(t, 1, 150)
	nodes.limits.answer = 20 << 10
	found, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
	require.NoError(t, err)
	assert.Equal(t, []string{"n01"}, found.Truncated)
	assert.Nil(t, found.Next)
	assert.InDelta(t, 75, len(found.Items), 40)

	response, body := do(t, serveAPI(t, nodes), http.MethodGet, "alice", inTeam)
	assert.Equal(t, `299 - "these nodes store more reports than a list contains per node: n01"`, response.Header.Get("Warning"))
	assert.Contains(t, body, `"truncatedNodes":["n01"]`)
}

// TestList_NodeWithoutEnd_Truncated: a compromised node lists at most maxReports, on all pages together.
func TestList_NodeWithoutEnd_Truncated(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	var asked atomic.Int64
	address := a.standIn(t, func(w http.ResponseWriter, r *http.Request) {
		first := 0
		if after := r.URL.Query().Get("after"); after != "" {
			_, err := fmt.Sscanf(after, "r%09d", &first)
			assert.NoError(t, err)
		}
		asked.Add(1)
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		assert.NoError(t, err)
		var all []report.Report
		for i := range limit {
			all = append(all, stored("n0", "team", fmt.Sprintf("r%09d", first+i+1), ""))
		}
		answer(w, http.StatusOK, map[string]any{"reports": all})
	})
	nodes := withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return []Endpoint{{Node: "n0", Address: address}}, nil }, always("uid")))
	server := serveAPI(t, nodes)
	seen := 0
	query := url.Values{"limit": {"4000"}}
	for page := range 20 {
		_, body := do(t, server, http.MethodGet, "alice", inTeam+"?"+query.Encode())
		var list v1alpha1.ReportList
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		seen += len(list.Items)
		if list.Continue == "" {
			assert.Equal(t, []string{"n0"}, list.TruncatedNodes)
			assert.Equal(t, 5, page+1)
			break
		}
		query.Set("continue", list.Continue)
	}
	assert.Equal(t, maxReports, seen)
	assert.LessOrEqual(t, asked.Load(), int64(100))
}

// TestList_HungNodes_TimeBounded: if all nodes hang, a list ends in time, the next page asks the other nodes, and later lists wait for
// none.
func TestList_HungNodes_TimeBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var endpoints []Endpoint
		for i := range 1000 {
			endpoints = append(endpoints, Endpoint{Node: fmt.Sprintf("n%04d", i), Address: fmt.Sprintf("n%04d:443", i)})
		}
		nodes := newPipes(t).asking(endpoints...)
		began := time.Now()
		nodes.now = func() time.Time { return began }
		silent, lists := 0, 0
		for q := (Query{Namespace: "team"}); lists < 3; {
			start := time.Now()
			found, err := list[reportItem](t.Context(), nodes, q)
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(start), listTime)
			lists++
			silent += len(found.Silent)
			assert.True(t, slices.IsSorted(found.Silent))
			if found.Next == nil {
				break
			}
			assert.Equal(t, endpoints[silent].Node, found.Next.Node)
			assert.Len(t, found.Rest, 1000-silent)
			q.After = *found.Next
		}
		assert.Equal(t, 1000, silent)
		assert.Equal(t, 2, lists, "%d nodes are asked at once, for %v each", namespaceAsked, nodeTimeout)

		start := time.Now()
		found, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
		require.NoError(t, err)
		assert.Zero(t, time.Since(start), "none is asked")
		assert.Len(t, found.Silent, 1000)
		assert.False(t, nodes.quiet.has(endpoints[0], began.Add(quietTime)), "after a while it is asked again")
	})
}

// TestList_NoTimeForANode_Refused: a list that asked no node in time is not empty, but an error.
func TestList_NoTimeForANode_Refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newPipes(t).asking(Endpoint{Node: "n0", Address: "n0:443"}, Endpoint{Node: "n1", Address: "n1:443"})
		nodes.limits.list = nodeTimeout / 2
		start := time.Now()
		_, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
		require.ErrorIs(t, err, errSlow)
		assert.Equal(t, nodeTimeout/2, time.Since(start))
	})
}

// TestList_OneNodeHangs_OthersDelayedByItsTimeout: the list contains the others' reports.
func TestList_OneNodeHangs_OthersDelayedByItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		for _, name := range []string{"n0", "n2"} {
			p.standIn(name+":443", func(w http.ResponseWriter, _ *http.Request) {
				answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored(name, "team", name, "")}})
			})
		}
		nodes := p.asking(Endpoint{Node: "n0", Address: "n0:443"}, Endpoint{Node: "n1", Address: "n1:443"}, Endpoint{Node: "n2", Address: "n2:443"})
		start := time.Now()
		found, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
		require.NoError(t, err)
		assert.Equal(t, nodeTimeout, time.Since(start))
		assert.Len(t, found.Items, 2)
		assert.Equal(t, []string{"n1"}, found.Silent)
	})
}

// TestList_SlowNode_PartByPart: reports that were received in time are kept, and the node is asked for the rest.
func TestList_SlowNode_PartByPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		var asked []string
		p.standIn("n0:443", func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Query().Get("after"))
			if len(asked) > 1 {
				answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored("n0", "team", "b", "")}})
				return
			}
			one, err := json.Marshal(stored("n0", "team", "a", ""))
			assert.NoError(t, err)
			_, _ = fmt.Fprintf(w, `{"reports":[%s,`, one)
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-r.Context().Done()
		})
		start := time.Now()
		found, err := list[reportItem](t.Context(), p.asking(Endpoint{Node: "n0", Address: "n0:443"}), Query{Namespace: "team"})
		require.NoError(t, err)
		assert.Equal(t, nodeTimeout, time.Since(start))
		require.Len(t, found.Items, 2)
		assert.Equal(t, []string{"", "auid"}, asked)
		assert.Empty(t, found.Silent)
		assert.Empty(t, found.Truncated)
	})
}

// TestContent_HungPlugin_Unavailable: a plugin that finds a report but hangs while reading it does not block a request for longer than
// headerTimeout.
func TestContent_HungPlugin_Unavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		p.standIn("n0:443", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/content") {
				<-r.Context().Done()
				return
			}
			answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored("n0", "team", "a", "content")}})
		})
		request := httptest.NewRequest(http.MethodGet, inTeam+"/a/content", http.NoBody)
		request.Header.Set("X-Remote-User", "alice")
		response, start := httptest.NewRecorder(), time.Now()
		apiOf(p.asking(Endpoint{Node: "n0", Address: "n0:443"})).ServeHTTP(response, request)
		assert.Equal(t, headerTimeout, time.Since(start))
		assert.Equal(t, http.StatusServiceUnavailable, response.Code, response.Body.String())
		assert.Contains(t, response.Body.String(), "the plugin of node n0 does not answer")
	})
}
