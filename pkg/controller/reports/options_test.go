package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// option is a request with an option, and its response.
type option struct {
	query, body string
	code        int
	// says is a part of the response.
	says string
	// kept: after a deletion, the report still exists.
	kept bool
}

const (
	ok            = http.StatusOK
	bad           = http.StatusBadRequest
	invalid       = http.StatusUnprocessableEntity
	conflict      = http.StatusConflict
	unsupported   = http.StatusUnsupportedMediaType
	notAllowed    = http.StatusMethodNotAllowed
	ownUID        = "OWN-UID"
	ownVersion    = "OWN-VERSION"
	otherOfReport = "precondition failed"
)

// deleteOptions are options of deletions. OWN-UID and OWN-VERSION stand for the values of the report.
var deleteOptions = map[string][]option{
	"gracePeriodSeconds": {
		{body: `{"gracePeriodSeconds":0}`, code: ok}, {query: "gracePeriodSeconds=30", code: ok},
		{query: "gracePeriodSeconds=x", code: bad, says: "gracePeriodSeconds", kept: true},
		{body: `{"gracePeriodSeconds":"x"}`, code: bad, says: "gracePeriodSeconds", kept: true},
	},
	"preconditions": {
		{body: `{"preconditions":{}}`, code: ok}, {query: "preconditions.uid=x", code: bad, says: "preconditions", kept: true},
		{body: `{"preconditions":{"name":"x"}}`, code: bad, says: "name", kept: true},
	},
	"preconditions.uid": {
		{body: `{"preconditions":{"uid":"OWN-UID"}}`, code: ok},
		{body: `{"preconditions":{"uid":"other"}}`, code: conflict, says: otherOfReport, kept: true},
	},
	"preconditions.resourceVersion": {
		{body: `{"preconditions":{"uid":"OWN-UID","resourceVersion":"OWN-VERSION"}}`, code: ok},
		{body: `{"preconditions":{"uid":"OWN-UID","resourceVersion":"1"}}`, code: conflict, says: otherOfReport, kept: true},
	},
	"orphanDependents": {{body: `{"orphanDependents":true}`, code: ok}, {query: "orphanDependents=false", code: ok}},
	"propagationPolicy": {
		{body: `{"propagationPolicy":"Background"}`, code: ok}, {body: `{"propagationPolicy":"Foreground"}`, code: ok},
		{query: "propagationPolicy=Orphan", code: ok}, {body: `{"propagationPolicy":"x"}`, code: invalid, says: "propagationPolicy", kept: true},
	},
	"dryRun": {
		{body: `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`, code: ok, says: `"status":"Success"`, kept: true},
		{query: "dryRun=All", code: ok, kept: true}, {query: "dryRun=All", body: `{"propagationPolicy":"Background"}`, code: ok, kept: true},
		{body: `{"dryRun":["x"]}`, code: invalid, says: "dryRun", kept: true}, {query: "dryRun=x", code: invalid, says: "dryRun", kept: true},
		{body: `{"dryRun":["All"],"preconditions":{"uid":"other"}}`, code: conflict, says: otherOfReport, kept: true},
	},
	"ignoreStoreReadErrorWithClusterBreakingPotential": {
		{body: `{"ignoreStoreReadErrorWithClusterBreakingPotential":false}`, code: ok},
		{
			body: `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, code: invalid,
			says: "ignoreStoreReadErrorWithClusterBreakingPotential", kept: true,
		},
	},
	"": {
		{code: ok}, {query: "fieldManager=kubectl&timeout=30s", code: ok}, {body: `{"new":1}`, code: bad, says: "new", kept: true},
		{body: `{"kind":"Report"}`, code: bad, says: "kind", kept: true}, {body: `{} {"dryRun":["All"]}`, code: bad, says: "more than one", kept: true},
		{body: `{"dryRun":["` + strings.Repeat("x", maxBody) + `"]}`, code: http.StatusRequestEntityTooLarge, says: "bytes", kept: true},
	},
}

// listed are the options of lists.
var listed = map[string][]option{
	"labelSelector": {{query: "labelSelector=gpu.prism.dev/pod=x", code: ok, says: `"items":[]`}, {query: "labelSelector=a=b=c", code: bad, says: "labelSelector"}},
	"fieldSelector": {
		{query: "fieldSelector=metadata.name=none", code: ok, says: `"items":[]`}, {query: "fieldSelector=metadata.uid=x", code: bad, says: "metadata.uid"},
	},
	"watch":               {{query: "watch=true", code: notAllowed, says: "watch"}, {query: "watch=1", code: notAllowed}, {query: "watch=false", code: ok, says: `"name":"a"`}},
	"allowWatchBookmarks": {{query: "allowWatchBookmarks=true", code: ok, says: `"name":"a"`}},
	"resourceVersion": {
		{query: "resourceVersion=0", code: ok, says: `"name":"a"`}, {query: "resourceVersion=", code: ok}, {query: "resourceVersion=1", code: bad, says: "resourceVersion"},
	},
	"resourceVersionMatch": {
		{query: "resourceVersionMatch=NotOlderThan&resourceVersion=0", code: ok, says: `"name":"a"`},
		{query: "resourceVersionMatch=Exact&resourceVersion=0", code: invalid, says: "resourceVersionMatch"},
		{query: "resourceVersionMatch=Exact&resourceVersion=1", code: bad, says: "resourceVersion"},
		{query: "resourceVersionMatch=x&resourceVersion=0", code: invalid, says: "resourceVersionMatch"},
	},
	"timeoutSeconds": {{query: "timeoutSeconds=1", code: ok, says: `"name":"a"`}, {query: "timeoutSeconds=x", code: bad, says: "timeoutSeconds"}},
	"limit": {
		{query: "limit=1", code: ok, says: `"continue":`}, {query: "limit=9223372036854775807", code: ok}, {query: "limit=-1", code: bad, says: "limit"},
		{query: "limit=x", code: bad, says: "limit"},
	},
	"continue":          {{query: "continue=x", code: bad, says: "continue"}},
	"sendInitialEvents": {{query: "sendInitialEvents=true", code: invalid, says: "sendInitialEvents"}},
	"shardSelector":     {{query: "shardSelector=x", code: bad, says: "shardSelector"}},
}

// got are the options of a get.
var got = map[string][]option{
	"resourceVersion": {
		{query: "resourceVersion=0", code: ok, says: `"name":"a"`}, {query: "resourceVersion=", code: ok}, {query: "resourceVersion=1", code: bad, says: "resourceVersion"},
	},
}

// created are the options of a creation.
var created = map[string][]option{
	"dryRun": {
		{query: "dryRun=All", body: stopCommand, code: http.StatusCreated}, {query: "dryRun=x", body: stopCommand, code: invalid, says: "dryRun"},
		{query: "dryrun=All", body: stopCommand, code: bad, says: "dryrun: not supported"},
	},
	"fieldManager": {
		{query: "fieldManager=kubectl-create", body: stopCommand, code: http.StatusCreated},
		{query: "fieldManager=" + strings.Repeat("x", 129), body: stopCommand, code: invalid, says: "fieldManager"},
	},
	"fieldValidation": {
		{query: "fieldValidation=Strict", body: stopCommand, code: http.StatusCreated}, {query: "fieldValidation=Ignore", body: stopCommand, code: http.StatusCreated},
		{query: "fieldValidation=Ignore", body: `{"spec":{"x":1}}`, code: bad, says: "unknown field"},
		{query: "fieldValidation=x", body: stopCommand, code: invalid, says: "fieldValidation"},
	},
	"": {
		{body: stopCommand, code: http.StatusCreated}, {query: "timeout=30s&pretty=true", body: stopCommand, code: http.StatusCreated},
		{query: "x=1", body: stopCommand, code: bad, says: "x: not supported"}, {code: bad, says: "the body is empty"},
		{body: stopCommand + "{}", code: bad, says: "more than one object"}, {body: stopCommand + "}", code: bad, says: "more than one object"},
		{body: `[]`, code: bad, says: "reading the command"}, {body: `{"spec":{"duration":"x"}}`, code: bad, says: "duration"},
		{body: `{"kind":"Report"}`, code: bad, says: "kind"}, {body: `{"apiVersion":"v1"}`, code: bad, says: "apiVersion"},
		{body: `{"metadata":{"namespace":"other"}}`, code: bad, says: "does not match the namespace of the request"},
		{body: `{"metadata":{"namespace":"team","name":"x"}}`, code: invalid, says: "metadata: Forbidden"},
		{body: `{"metadata":{"labels":{"a":"b"}}}`, code: invalid, says: "metadata: Forbidden"},
		{body: `{"spec":{"verb":"Start","sessions":["a"]}}`, code: invalid, says: `"field":"spec.id"`},
		{body: `{"metadata":{"name":"` + strings.Repeat("x", maxCommand) + `"}}`, code: http.StatusRequestEntityTooLarge, says: "at most 262144 bytes"},
	},
}

// stopCommand is the body of a creation.
const stopCommand = `{"spec":{"id":"01234567-89ab-4def-8123-456789abcdef","verb":"Stop","sessions":["1a2b3c4d-w1-0123456789abcdef"]}}`

// optionsOf returns the names of the fields of an API object, including nested fields.
func optionsOf(of reflect.Type, prefix string) (names []string) {
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || len(field.Index) > 1 { // the kind
			continue
		}
		names = append(names, prefix+name)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			names = append(names, optionsOf(inner, prefix+name+".")...)
		}
	}
	return names
}

// TestOptions_EachField_CarriedOutOrRefused: fails if a new version of Kubernetes adds an option without a row here.
func TestOptions_EachField_CarriedOutOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of           reflect.Type
		rows         map[string][]option
		method, path string
	}{
		{reflect.TypeFor[metav1.DeleteOptions](), deleteOptions, http.MethodDelete, inTeam + "/a"},
		{reflect.TypeFor[metav1.ListOptions](), listed, http.MethodGet, inTeam},
		{reflect.TypeFor[metav1.GetOptions](), got, http.MethodGet, inTeam + "/a"},
		{reflect.TypeFor[metav1.CreateOptions](), created, http.MethodPost, commandsInTeam},
	} {
		for _, name := range optionsOf(c.of, "") {
			assert.NotEmpty(t, c.rows[name], "%s of %s: carry it out or refuse it, and add rows here", name, c.of)
		}
		for name, rows := range c.rows {
			for _, row := range rows {
				f := &fakeNode{reports: []report.Report{stored("n0", "team", "a", "content"), stored("n0", "team", "b", "content")}}
				nodes, certificate := f.serve(t, "n0")
				server := api(t, nodes, certificate)
				row.check(t, server, c.method, c.path, name)
			}
		}
	}
}

func (o option) check(t *testing.T, server *httptest.Server, method, path, name string) {
	t.Helper()
	var r v1alpha1.Report
	_, body := do(t, server, http.MethodGet, "alice", inTeam+"/a")
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	o.body = strings.NewReplacer(ownUID, string(r.UID), ownVersion, r.ResourceVersion).Replace(o.body)
	response, answer := send(t, server, method, "alice", path+"?"+o.query, o.body, "Content-Type", "application/json")
	assert.Equal(t, o.code, response.StatusCode, "%s: %+v: %s", name, o, answer)
	assert.Contains(t, answer, o.says, "%s: %+v", name, o)
	if method != http.MethodDelete {
		return
	}
	response, _ = do(t, server, http.MethodGet, "alice", inTeam+"/a")
	assert.Equal(t, o.kept, response.StatusCode == http.StatusOK, "%s: %+v: the report is there afterwards", name, o)
}

// TestDelete_OtherForms_Refused: unread options would be ignored.
func TestDelete_OtherForms_Refused(t *testing.T) {
	t.Parallel()
	nodes, certificate := newNode(t, "n0", map[string]string{"a": "content"})
	server := api(t, nodes, certificate)
	for _, kind := range []string{"application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "x"} {
		response, body := send(t, server, http.MethodDelete, "alice", inTeam+"/a", `{"dryRun":["All"]}`, "Content-Type", kind)
		assert.Equal(t, unsupported, response.StatusCode, body)
	}
	response, body := send(t, server, http.MethodDelete, "alice", inTeam+"/a", `{"dryRun":["All"]}`, "Content-Type", "")
	assert.Equal(t, ok, response.StatusCode, body)
	response, _ = do(t, server, http.MethodGet, "alice", inTeam+"/a")
	assert.Equal(t, ok, response.StatusCode)
}

// TestDelete_DryRun_NothingDeleted: a plugin of an earlier version would delete the report, so it is not asked.
func TestDelete_DryRun_NothingDeleted(t *testing.T) {
	t.Parallel()
	var deletions atomic.Int64
	a := newAuthority(t)
	r := stored("n0", "team", "a", "x")
	recording := stored("n0", "team", "b", "x")
	recording.State = report.Recording
	address := a.standIn(t, func(w http.ResponseWriter, request *http.Request) {
		switch {
		case request.Method == http.MethodDelete:
			deletions.Add(1)
			w.WriteHeader(http.StatusNoContent)
		case strings.HasSuffix(request.URL.Path, "/reports"):
			answer(w, ok, map[string]any{"reports": []report.Report{r, recording}})
		default:
			answer(w, ok, r)
		}
	})
	server := api(t, func(context.Context) ([]Endpoint, error) { return []Endpoint{{Node: "n0", Address: address}}, nil }, a.issue(t, "prism-controller"))
	response, body := send(t, server, http.MethodDelete, "alice", inTeam+"/a", `{"dryRun":["All"]}`)
	assert.Equal(t, ok, response.StatusCode, body)
	assert.Contains(t, body, fmt.Sprintf(`"uid":%q`, r.ObjectUID()))
	response, body = send(t, server, http.MethodDelete, "alice", inTeam+"/b", `{"dryRun":["All"]}`)
	assert.Equal(t, conflict, response.StatusCode, body)
	assert.Zero(t, deletions.Load())

	response, body = send(t, server, http.MethodDelete, "alice", inTeam+"/a", `{"preconditions":{"uid":"other"}}`)
	assert.Equal(t, conflict, response.StatusCode, body)
	assert.Zero(t, deletions.Load())
	response, body = send(t, server, http.MethodDelete, "alice", inTeam+"/a", `{}`)
	assert.Equal(t, ok, response.StatusCode, body)
	assert.EqualValues(t, 1, deletions.Load())
}
