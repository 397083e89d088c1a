package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const (
	sessionsInTeam = version1 + "/namespaces/team/sessions"
	commandsInTeam = version1 + "/namespaces/team/sessioncommands"
)

// waiting returns a session of a node.
func waiting(node, namespace string, pid int) session.Session {
	return session.Session{
		ID: fmt.Sprintf("1a2b3c4d-w%d-0123456789abcdef", pid), Namespace: namespace, NamespaceUID: "uid", Claim: "c", ClaimUID: "1a2b3c4d-uid", Pod: "p",
		Container: "main", Node: node, Process: "python3", PID: pid, Started: time.Unix(1, 0).UTC(), Since: time.Unix(2, 0).UTC(), State: session.Waiting,
	}
}

// sessionNode is a plugin with sessions, as its API answers.
type sessionNode struct {
	sessions []session.Session
	claims   []session.Claim
	accepted session.Accepted

	mu       sync.Mutex
	commands []session.Command
}

func (n *sessionNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/sessions":
		query, all := r.URL.Query(), []session.Session{}
		limit, _ := strconv.Atoi(query.Get("limit"))
		for _, s := range n.sessions {
			if s.Key() > query.Get("after") && (!query.Has("id") || s.ID == query.Get("id")) && len(all) < limit {
				all = append(all, s)
			}
		}
		answer(w, http.StatusOK, map[string]any{"claims": n.claims, "sessions": all, "now": time.Now()})
	case "POST /v1/commands":
		var c session.Command
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		n.commands = append(n.commands, c)
		a := n.accepted
		a.Now = time.Now()
		answer(w, http.StatusOK, a)
	default:
		answer(w, http.StatusOK, map[string]any{"reports": []any{}})
	}
}

// taken returns the commands that the node received, and forgets them.
func (n *sessionNode) taken() []session.Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.commands = nil }()
	return n.commands
}

// waitingOn returns Nodes that ask these plugins, named n0, n1 and so on; nil is a node whose plugin does not run.
func waitingOn(t *testing.T, plugins ...http.Handler) *Nodes {
	t.Helper()
	a := newAuthority(t)
	var endpoints []Endpoint
	for i, plugin := range plugins {
		e := Endpoint{Node: fmt.Sprint("n", i)}
		if plugin != nil {
			e.Address = a.standIn(t, plugin.ServeHTTP)
		}
		endpoints = append(endpoints, e)
	}
	return withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid")))
}

// TestSessions_Forms_AsClientsAsk: get, lists, tables, metadata, selectors, and the refusal of a watch.
func TestSessions_Forms_AsClientsAsk(t *testing.T) {
	t.Parallel()
	n0 := &sessionNode{sessions: []session.Session{waiting("n0", "team", 1), waiting("n0", "team", 2)}}
	n0.sessions[1].State = session.Recording
	n0.sessions[1].Last = &session.Answer{
		ID: "01234567-89ab-4def-8123-456789abcdef", Verb: v1alpha1.SessionStart, Outcome: session.Begun, Begun: new(time.Unix(3, 5000).UTC()),
		Report: "1a2b3c4d-s2-0123456789abcdef", Message: "m",
	}
	server := serveAPI(t, waitingOn(t, n0))
	var list v1alpha1.SessionList
	_, body := do(t, server, http.MethodGet, "alice", sessionsInTeam)
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	assert.Equal(t, "SessionList", list.Kind)
	require.Len(t, list.Items, 2)
	var one v1alpha1.Session
	_, body = do(t, server, http.MethodGet, "alice", sessionsInTeam+"/"+n0.sessions[1].ID)
	require.NoError(t, json.Unmarshal([]byte(body), &one))
	assert.Equal(t, list.Items[1], one)
	assert.Equal(t, v1alpha1.SessionStatus{State: "Recording", Since: metav1.NewTime(time.Unix(2, 0).Local()), LastCommand: &v1alpha1.LastCommand{
		ID: "01234567-89ab-4def-8123-456789abcdef", Verb: v1alpha1.SessionStart, Outcome: "Recording", Begun: new(metav1.NewMicroTime(time.Unix(3, 5000).Local())),
		Report: "1a2b3c4d-s2-0123456789abcdef", Message: "m",
	}}, one.Status)
	assert.Equal(t, v1alpha1.SessionSpec{Claim: "c", ClaimUID: "1a2b3c4d-uid", Pod: "p", Container: "main", Node: "n0", Process: "python3", PID: 2}, one.Spec)
	assert.Equal(t, n0.sessions[1].Labels(), one.Labels)
	assert.NotEqual(t, list.Items[0].UID, one.UID)

	_, body = do(t, server, http.MethodGet, "alice", sessionsInTeam, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var rows metav1.Table
	require.NoError(t, json.Unmarshal([]byte(body), &rows))
	require.Len(t, rows.Rows, 2)
	assert.Equal(t, []any{"Recording", "Start: Recording"}, []any{rows.Rows[1].Cells[5], rows.Rows[1].Cells[7]})
	assert.Len(t, rows.Rows[0].Cells, len(rows.ColumnDefinitions))
	_, body = do(t, server, http.MethodGet, "alice", sessionsInTeam, "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	assert.NotContains(t, body, `"spec"`)
	_, body = do(t, server, http.MethodGet, "alice", sessionsInTeam+"?fieldSelector=status.state=Recording&labelSelector=gpu.prism.dev/pod=p")
	assert.NotContains(t, body, n0.sessions[0].ID)
	assert.Contains(t, body, one.Name)
	response, body := do(t, server, http.MethodGet, "alice", sessionsInTeam+"?watch=true")
	assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
	assert.Contains(t, body, `"kind":"sessions"`)
	for _, c := range [][2]string{{http.MethodPost, sessionsInTeam}, {http.MethodDelete, sessionsInTeam + "/a"}, {http.MethodGet, commandsInTeam}} {
		response, body = do(t, server, c[0], "alice", c[1])
		assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode, body)
		assert.Contains(t, body, `"kind":"session`)
	}
}

// TestSessions_Nodes_SilentNamedEarlierPluginsNot: a plugin of an earlier version has no sessions.
func TestSessions_Nodes_SilentNamedEarlierPluginsNot(t *testing.T) {
	t.Parallel()
	foreign := waiting("n0", "team", 9)
	former := waiting("n3", "team", 4)
	former.NamespaceUID = "former"
	n3 := &sessionNode{
		sessions: []session.Session{waiting("n3", "team", 3), former, waiting("n3", "other", 5), foreign},
		claims: []session.Claim{
			{Claim: "c", ClaimUID: "u", Namespace: "team", NamespaceUID: "uid", Armed: true}, {Claim: "d", ClaimUID: "v", Namespace: "team"}, {Claim: "e", Namespace: "other"},
			{Claim: "f", Namespace: "team", NamespaceUID: "former"},
		},
	}
	server := serveAPI(t, waitingOn(t, http.NotFoundHandler(), nil, &sessionNode{}, n3))
	response, body := do(t, server, http.MethodGet, "alice", sessionsInTeam)
	require.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, `299 - "the list is incomplete: these nodes did not answer: n1"`, response.Header.Get("Warning"))
	var list v1alpha1.SessionList
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Items, 1)
	assert.Equal(t, n3.sessions[0].ID, list.Items[0].Name)
	assert.Equal(t, []string{"n1"}, list.SilentNodes)
	assert.Equal(t, []v1alpha1.ArmedClaim{{Namespace: "team", Claim: "c", ClaimUID: "u", Armed: true}, {Namespace: "team", Claim: "d", ClaimUID: "v"}}, list.Claims)

	response, body = do(t, server, http.MethodGet, "alice", sessionsInTeam+"/unknown")
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	assert.Contains(t, body, `session \"unknown\" was not found, and these nodes did not answer: n1`)
	_, body = do(t, server, http.MethodGet, "root", version1+"/sessions")
	assert.Contains(t, body, n3.sessions[2].ID, "of any namespace")
}

// TestSessions_Pages_EachOnce: sessions and claims.
func TestSessions_Pages_EachOnce(t *testing.T) {
	t.Parallel()
	var nodes []http.Handler
	var want, claims []string
	for i := range 3 {
		n := &sessionNode{}
		for j := range 150 {
			n.sessions = append(n.sessions, waiting(fmt.Sprint("n", i), "team", 10000+1000*i+j))
			want = append(want, n.sessions[j].ID)
		}
		for j := range 3 {
			n.claims = append(n.claims, session.Claim{Namespace: "team", Claim: fmt.Sprint("c", i, j)})
			claims = append(claims, n.claims[j].Claim)
		}
		nodes = append(nodes, n)
	}
	server := serveAPI(t, waitingOn(t, nodes...))
	for _, limit := range []int{0, 7, 150, 1000} {
		var got, armed []string
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		for more := true; more; more = query.Get("continue") != "" {
			_, body := do(t, server, http.MethodGet, "alice", sessionsInTeam+"?"+query.Encode())
			var list v1alpha1.SessionList
			require.NoError(t, json.Unmarshal([]byte(body), &list))
			for _, one := range list.Items {
				got = append(got, one.Name)
			}
			for _, one := range list.Claims {
				armed = append(armed, one.Claim)
			}
			query.Set("continue", list.Continue)
		}
		assert.Equal(t, want, got, limit)
		assert.Equal(t, claims, armed, limit)
	}
	token, err := Position{Node: "n1"}.encode(sessionKind, "team")
	require.NoError(t, err)
	for path, want := range map[string]int{sessionsInTeam: http.StatusOK, inTeam: http.StatusBadRequest} {
		response, _ := do(t, server, http.MethodGet, "alice", path+"?continue="+token)
		assert.Equal(t, want, response.StatusCode, path)
	}
}

// TestReadList_Claims_BeforeSessionsAndBounded: claims count as memory, and a large number does not make a node silent.
func TestReadList_Claims_BeforeSessionsAndBounded(t *testing.T) {
	t.Parallel()
	all := func(session.Session) bool { return true }
	text := `{"claims":[` + strings.Repeat(`{"claim":"c"},`, 2*maxClaims) + `{}],"sessions":[{"id":"a","claimUID":"u"},{"id":"b","claimUID":"u"}]}`
	list, err := readList[sessionItem](strings.NewReader(text), "", bounds{bytes: 1 << 20, cost: 1 << 20, items: 10, kept: 10}, all)
	require.NoError(t, err)
	assert.Len(t, list.claims, maxClaims)
	assert.Greater(t, list.cost, maxClaims*claimCost)
	assert.Len(t, list.items, 2)
	list, err = readList[sessionItem](strings.NewReader(text), "", bounds{bytes: firstBytes / 2, cost: 1 << 20, items: 10, kept: 10}, all)
	require.NoError(t, err)
	assert.Empty(t, list.claims)
	assert.True(t, list.more)
	list, err = readList[sessionItem](strings.NewReader(`{"claims":7,"sessions":[{"id":"a","claimUID":"u"}]}`), "", bounds{1 << 20, 1 << 20, 10, 10}, all)
	require.NoError(t, err)
	assert.Len(t, slices.Concat(list.items), 1)
}

// TestSessions_RightToReports_NotASessionsRight: decisions are stored for each resource.
func TestSessions_RightToReports_NotASessionsRight(t *testing.T) {
	t.Parallel()
	s := &Server{Nodes: waitingOn(t), Users: headers{}, Access: NewDecisions(rights{"alice list reports team": true, "bob list sessions team": true}, always("uid"))}
	handler := s.Handler()
	for _, c := range []struct {
		by, method, path string
		want             int
	}{
		{"alice", http.MethodGet, inTeam, http.StatusOK}, {"alice", http.MethodGet, sessionsInTeam, http.StatusForbidden},
		{"bob", http.MethodGet, sessionsInTeam, http.StatusOK}, {"bob", http.MethodGet, inTeam, http.StatusForbidden},
		{"bob", http.MethodPost, commandsInTeam, http.StatusForbidden},
	} {
		response := request(handler, c.method, c.by, c.path)
		assert.Equal(t, c.want, response.Code, "%s %s", c.by, c.path)
		if c.want == http.StatusForbidden {
			assert.Contains(t, response.Body.String(), `resource \"`+strings.TrimPrefix(c.path, version1+"/namespaces/team/")+`\"`)
		}
	}
}
