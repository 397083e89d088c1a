package reports

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationapi "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// headers authenticates only by X-Remote-User: the front proxy is tested separately.
type headers struct{}

func (headers) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("X-Remote-User")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
}

// rights allow "<user> <verb> <resource> <namespace>".
type rights map[string]bool

func (a rights) Allowed(_ context.Context, by user.Info, what authorizationapi.ResourceAttributes) (bool, string, error) {
	named := what.Resource
	if what.Subresource != "" {
		named += "/" + what.Subresource
	}
	return a[strings.Join([]string{by.GetName(), what.Verb, named, what.Namespace}, " ")], "", nil
}

// withLongLimits sets limits that nodes meet on a busy machine.
func withLongLimits(n *Nodes) *Nodes {
	n.limits.node, n.limits.list, n.limits.connect, n.limits.command, n.limits.commands = time.Minute, time.Minute, time.Minute, time.Minute, time.Minute
	n.client.Transport.(*http.Transport).ResponseHeaderTimeout = time.Minute
	return n
}

// api returns the API over these nodes; alice may do everything in namespace team, bob may list there.
func api(t *testing.T, endpoints func(context.Context) ([]Endpoint, error), certificate string) *httptest.Server {
	t.Helper()
	return serveAPI(t, withLongLimits(NewNodes(certificate, endpoints, always("uid"))))
}

// apiOf returns a handler for the reports of nodes.
func apiOf(nodes *Nodes) http.Handler {
	s := &Server{Nodes: nodes, Users: headers{}, Access: rights{
		"alice list reports team": true, "alice get reports team": true, "alice get reports/content team": true, "alice delete reports team": true,
		"bob list reports team": true, "bob get reports team": true, "root list reports ": true, "alice list reports other": true,
		"alice list sessions team": true, "alice get sessions team": true, "alice create sessioncommands team": true, "root list sessions ": true,
	}}
	return s.Handler()
}

// serveAPI serves the reports of nodes.
func serveAPI(t *testing.T, nodes *Nodes) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(apiOf(nodes))
	t.Cleanup(server.Close)
	return server
}

// do sends a request as a user and returns the response.
func do(t *testing.T, server *httptest.Server, method, by, path string, header ...string) (*http.Response, string) {
	t.Helper()
	return send(t, server, method, by, path, "", header...)
}

// send sends a request with a body.
func send(t *testing.T, server *httptest.Server, method, by, path, text string, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(text))
	require.NoError(t, err)
	if by != "" {
		request.Header.Set("X-Remote-User", by)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(body)
}

const (
	version1 = "/apis/profiles.gpu.prism.dev/v1alpha1"
	inTeam   = version1 + "/namespaces/team/reports"
)

// stored returns a report of node n with that content.
func stored(node, namespace, id, content string) report.Report {
	sum := sha256.Sum256([]byte(content))
	return report.Report{
		ID: id, Namespace: namespace, Claim: "c", ClaimUID: "uid", Pod: "p", Container: "main", Node: node, Process: "python3", State: report.Ready,
		Started: time.Unix(1, 0).UTC(), File: id + ".nsys-rep", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
	}
}

func TestList_Rights_ReviewedBeforeNodesAreAsked(t *testing.T) {
	t.Parallel()
	asked := 0
	nodes, certificate := newNode(t, "n0", map[string]string{"a": "content"})
	endpoints := func(ctx context.Context) ([]Endpoint, error) {
		asked++
		return nodes(ctx)
	}
	server := api(t, endpoints, certificate)
	for path, by := range map[string]string{
		inTeam: "eve", version1 + "/reports": "alice", version1 + "/namespaces/other/reports": "bob", inTeam + "/a/content": "bob",
		inTeam + "/a": "eve",
	} {
		response, body := do(t, server, http.MethodGet, by, path)
		assert.Equal(t, http.StatusForbidden, response.StatusCode, path)
		assert.Contains(t, body, `cannot`, path)
	}
	response, _ := do(t, server, http.MethodDelete, "bob", inTeam+"/a")
	assert.Equal(t, http.StatusForbidden, response.StatusCode)
	response, _ = do(t, server, http.MethodGet, "", inTeam)
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode)
	assert.Zero(t, asked)
	response, _ = do(t, server, http.MethodGet, "bob", inTeam)
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestList_Forms_AsClientsAsk(t *testing.T) {
	t.Parallel()
	nodes, certificate := newNode(t, "n0", map[string]string{"a": "content", "b": "more"})
	server := api(t, nodes, certificate)
	_, body := do(t, server, http.MethodGet, "alice", inTeam+"?fieldSelector=metadata.name=a&labelSelector=gpu.prism.dev/pod=p")
	var list v1alpha1.ReportList
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Items, 1)
	assert.Equal(t, "ReportList", list.Kind)
	assert.Equal(t, int64(7), list.Items[0].Status.Size)
	assert.Equal(t, map[string]string{
		"gpu.prism.dev/claim": "c", "gpu.prism.dev/pod": "p", "gpu.prism.dev/container": "main", "gpu.prism.dev/node": "n0",
	}, list.Items[0].Labels)

	_, body = do(t, server, http.MethodGet, "alice", inTeam, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	var rows metav1.Table
	require.NoError(t, json.Unmarshal([]byte(body), &rows))
	assert.Len(t, rows.Rows, 2)
	assert.Len(t, rows.Rows[0].Cells, len(rows.ColumnDefinitions))

	accept := "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	_, body = do(t, server, http.MethodGet, "alice", inTeam, "Accept", accept)
	assert.Contains(t, body, `"kind":"PartialObjectMetadataList"`)
	assert.NotContains(t, body, `"spec"`)
	for _, query := range []string{"?fieldSelector=spec.secret=a", "?labelSelector=a=b=c", "?fieldSelector=%21"} {
		response, _ := do(t, server, http.MethodGet, "alice", inTeam+query)
		assert.Equal(t, http.StatusBadRequest, response.StatusCode, query)
	}
	response, _ := do(t, server, http.MethodGet, "alice", inTeam+"?watch=true")
	assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
	response, _ = do(t, server, http.MethodPost, "alice", inTeam)
	assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
}

// TestContent_NoRange_AllOrNone: a client that requests everything never gets a part.
func TestContent_NoRange_AllOrNone(t *testing.T) {
	t.Parallel()
	most := strings.Repeat("0123456789abcdef", maxRange/16)
	nodes, certificate := newNode(t, "n0", map[string]string{"a": most, "b": most + "x"})
	server := api(t, nodes, certificate)
	for _, header := range [][]string{nil, {"Range", "bytes=0-1", "If-Range", `"other"`}} {
		response, body := do(t, server, http.MethodGet, "alice", inTeam+"/a/content", header...)
		assert.Equal(t, http.StatusOK, response.StatusCode)
		assert.Len(t, body, maxRange)
		assert.Empty(t, response.Header.Get("Content-Range"))
		assert.EqualValues(t, maxRange, response.ContentLength)
		response, body = do(t, server, http.MethodGet, "alice", inTeam+"/b/content", header...)
		assert.Equal(t, http.StatusBadRequest, response.StatusCode)
		assert.Contains(t, body, "Range: required, because report b has 16777217 bytes")
	}
}

// TestContent_Ranges_CutAndCompared: a response contains at most maxRange bytes, and never bytes of different content.
func TestContent_Ranges_CutAndCompared(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", (maxRange+1<<20)/16)
	nodes, certificate := newNode(t, "n0", map[string]string{"a": large})
	server := api(t, nodes, certificate)
	sum := stored("n0", "team", "a", large).SHA256
	for wanted, c := range map[string]struct {
		code        int
		first, last int
	}{
		"":                                     {code: http.StatusBadRequest},
		"bytes=0-":                             {http.StatusPartialContent, 0, maxRange - 1},
		"bytes=5-9":                            {http.StatusPartialContent, 5, 9},
		"bytes=-3":                             {http.StatusPartialContent, len(large) - 3, len(large) - 1},
		"bytes=5-99999999999":                  {http.StatusPartialContent, 5, 5 + maxRange - 1},
		fmt.Sprintf("bytes=%d-", len(large)-1): {http.StatusPartialContent, len(large) - 1, len(large) - 1},
		fmt.Sprintf("bytes=%d-", len(large)):   {code: http.StatusRequestedRangeNotSatisfiable},
		"bytes=9-5":                            {code: http.StatusRequestedRangeNotSatisfiable},
		"bytes=0-1,3-4":                        {code: http.StatusRequestedRangeNotSatisfiable},
		"lines=1-2":                            {code: http.StatusRequestedRangeNotSatisfiable},
	} {
		var header []string
		if wanted != "" {
			header = []string{"Range", wanted}
		}
		response, body := do(t, server, http.MethodGet, "alice", inTeam+"/a/content", header...)
		require.Equal(t, c.code, response.StatusCode, wanted)
		if c.code != http.StatusPartialContent {
			continue
		}
		assert.Equal(t, large[c.first:c.last+1], body, wanted)
		assert.Equal(t, fmt.Sprintf("bytes %d-%d/%d", c.first, c.last, len(large)), response.Header.Get("Content-Range"), wanted)
		assert.Equal(t, `"`+sum+`"`, response.Header.Get("ETag"))
	}
	response, _ := do(t, server, http.MethodGet, "alice", inTeam+"/a/content", "If-Match", `"other"`)
	assert.Equal(t, http.StatusPreconditionFailed, response.StatusCode)
	response, _ = do(t, server, http.MethodGet, "alice", inTeam+"/a/content", "If-Match", `"`+sum+`"`, "Range", "bytes=0-0")
	assert.Equal(t, http.StatusPartialContent, response.StatusCode)
}

func TestReport_NotComplete_Conflict(t *testing.T) {
	t.Parallel()
	node := &fakeNode{reports: []report.Report{stored("n0", "team", "a", "x"), stored("n0", "team", "b", "x")}, busy: true}
	node.reports[0].State = report.Recording
	node.reports[1].Path = "/data/x.nsys-rep"
	nodes, certificate := node.serve(t, "n0")
	server := api(t, nodes, certificate)
	for _, name := range []string{"a", "b"} {
		response, body := do(t, server, http.MethodGet, "alice", inTeam+"/"+name+"/content")
		assert.Equal(t, http.StatusConflict, response.StatusCode, body)
	}
	response, body := do(t, server, http.MethodDelete, "alice", inTeam+"/a")
	assert.Equal(t, http.StatusConflict, response.StatusCode, body)
}

func TestDelete_Report_Gone(t *testing.T) {
	t.Parallel()
	nodes, certificate := newNode(t, "n0", map[string]string{"a": "content"})
	server := api(t, nodes, certificate)
	response, _ := do(t, server, http.MethodDelete, "alice", inTeam+"/a")
	assert.Equal(t, http.StatusOK, response.StatusCode)
	response, _ = do(t, server, http.MethodGet, "alice", inTeam+"/a")
	assert.Equal(t, http.StatusNotFound, response.StatusCode)
}

func TestDiscovery_AnyUser_Answered(t *testing.T) {
	t.Parallel()
	server := api(t, func(context.Context) ([]Endpoint, error) { return nil, nil }, t.TempDir())
	for path, kind := range map[string]string{
		"/apis": "APIGroupList", "/apis/profiles.gpu.prism.dev": "APIGroup", version1: "APIResourceList",
	} {
		response, body := do(t, server, http.MethodGet, "", path)
		assert.Equal(t, http.StatusOK, response.StatusCode, path)
		assert.Contains(t, body, `"kind":"`+kind+`"`)
	}
}
