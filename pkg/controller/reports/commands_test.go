package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// commandFor returns the body of a command with these fields of its spec.
func commandFor(spec string) string {
	return `{"spec":{"id":"01234567-89ab-4def-8123-456789abcdef",` + spec + `}}`
}

// post sends a command as a user.
func post(handler http.Handler, by, path, body string) (*httptest.ResponseRecorder, v1alpha1.SessionCommand) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-Remote-User", by)
	r.Header.Set("Content-Type", "application/json")
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, r)
	var c v1alpha1.SessionCommand
	_ = json.Unmarshal(response.Body.Bytes(), &c)
	return response, c
}

// TestCommand_Selection_OneRequestToEachNode: the answers of all nodes are one status, and options reach the nodes.
func TestCommand_Selection_OneRequestToEachNode(t *testing.T) {
	t.Parallel()
	n0 := &sessionNode{accepted: session.Accepted{Names: []string{"s0", "s1"}}}
	n1 := &sessionNode{accepted: session.Accepted{Names: []string{"s2"}, Refused: []session.Refusal{{Name: "s3", Reason: "it is recording already"}}}}
	nodes := waitingOn(t, n0, n1, http.NotFoundHandler(), nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusServiceUnavailable, map[string]string{"error": "another process leads"})
	}))
	r := &reviews{}
	handler := (&Server{Nodes: nodes, Users: headers{}, Access: NewDecisions(r, always("uid"))}).Handler()
	body := commandFor(`"verb":"Start","selection":{"labelSelector":"gpu.prism.dev/pod=p"},"duration":"30s","samplingFrequencyHz":1000,"backtrace":"DWARF"`)
	response, got := post(handler, "alice", commandsInTeam+"?dryRun=All", body)
	require.Equal(t, http.StatusCreated, response.Code, response.Body)
	assert.Equal(t, 1, r.asked, "reviews")
	denied := &reviews{deny: true}
	response, _ = post((&Server{Nodes: nodes, Users: headers{}, Access: NewDecisions(denied, always("uid"))}).Handler(), "alice", commandsInTeam, body)
	assert.Equal(t, []int{http.StatusForbidden, 1}, []int{response.Code, denied.asked})
	want := session.Command{
		ID: "01234567-89ab-4def-8123-456789abcdef", Verb: v1alpha1.SessionStart, Namespace: "team", NamespaceUID: "uid",
		Selection: &session.Selection{Labels: "gpu.prism.dev/pod=p"}, Duration: 30 * time.Second, SamplingFrequencyHz: 1000, Backtrace: "DWARF", DryRun: true,
	}
	assert.Equal(t, []session.Command{want}, n0.taken())
	assert.Equal(t, []session.Command{want}, n1.taken())
	got.Status.Clocks = nil
	assert.Equal(t, v1alpha1.SessionCommandStatus{
		Accepted: 3, Names: []string{"s0", "s1", "s2"}, Refused: []v1alpha1.RefusedSession{{Session: "s3", Reason: "it is recording already"}},
		SilentNodes: []string{"n3", "n4"},
	}, got.Status)
	assert.Equal(t, []string{"SessionCommand", "profiles.gpu.prism.dev/v1alpha1", "team", ""}, []string{got.Kind, got.APIVersion, got.Namespace, got.Name})
	assert.False(t, got.CreationTimestamp.IsZero())
	assert.Equal(t, 30*time.Second, got.Spec.Duration.Duration)

	_, _ = post(handler, "alice", commandsInTeam, commandFor(`"verb":"Stop","selection":{"fieldSelector":"spec.node=n1"}`))
	assert.Empty(t, n0.taken(), "of another node")
	assert.Len(t, n1.taken(), 1)
}

// TestCommand_Named_ListedOnesOnTheirNodes: a session that a list contained is commanded on its node only, and unknown ones are not found.
func TestCommand_Named_ListedOnesOnTheirNodes(t *testing.T) {
	t.Parallel()
	listed := waiting("n1", "team", 1).ID
	n0 := &sessionNode{}
	n1 := &sessionNode{sessions: []session.Session{waiting("n1", "team", 1)}, accepted: session.Accepted{Names: []string{listed}}}
	handler := apiOf(waitingOn(t, n0, n1, nil))
	both := commandFor(`"verb":"Stop","sessions":["unknown","` + listed + `"]`)
	_, got := post(handler, "alice", commandsInTeam, both)
	assert.Equal(t, []v1alpha1.RefusedSession{{Session: "unknown", Reason: "not found, and these nodes did not answer: n2"}}, got.Status.Refused)
	assert.Equal(t, []string{listed}, got.Status.Names)
	assert.Len(t, n0.taken(), 1)
	assert.Len(t, n1.taken(), 1)

	assert.Equal(t, http.StatusOK, request(handler, http.MethodGet, "alice", sessionsInTeam).Code)
	_, got = post(handler, "alice", commandsInTeam, commandFor(`"verb":"Stop","sessions":["`+listed+`"]`))
	assert.Equal(t, []string{listed}, got.Status.Names)
	assert.Empty(t, got.Status.SilentNodes)
	assert.Empty(t, n0.taken())
	assert.Len(t, n1.taken(), 1)
	_, _ = post(handler, "alice", commandsInTeam, both)
	assert.Len(t, n0.taken(), 1, "one of them is unknown")
}

// TestCommand_InvalidOrForbidden_NoNodeAsked: the status names the field.
func TestCommand_InvalidOrForbidden_NoNodeAsked(t *testing.T) {
	t.Parallel()
	n0 := &sessionNode{}
	nodes := waitingOn(t, n0)
	handler := apiOf(nodes)
	names := `"` + strings.Repeat(`a","`, session.MaxNames) + `a"`
	for spec, field := range map[string]string{
		`"verb":"Stop","sessions":[` + names + `]`:       "spec.sessions",
		`"verb":"Start","sessions":["a"],"selection":{}`: "spec.selection",
		`"verb":"Start"`:                                                     "spec.sessions",
		`"verb":"Arm","sessions":["a"]`:                                      "spec.claims",
		`"verb":"Start","sessions":["a"],"duration":"24h1s"`:                 "spec.duration",
		`"verb":"Start","sessions":["a"],"at":"2000-01-01T00:00:00.000000Z"`: "spec.at",
		`"verb":"Pause","sessions":["a"]`:                                    "spec.verb",
	} {
		response, _ := post(handler, "alice", commandsInTeam, commandFor(spec))
		assert.Equal(t, invalid, response.Code, spec)
		assert.Contains(t, response.Body.String(), `"field":"`+field+`"`, spec)
		assert.Contains(t, response.Body.String(), `"reason":"Invalid"`)
	}
	body := commandFor(`"verb":"Stop","selection":{}`)
	for path, by := range map[string]string{commandsInTeam: "bob", version1 + "/namespaces/other/sessioncommands": "alice"} {
		response, _ := post(handler, by, path, body)
		assert.Equal(t, http.StatusForbidden, response.Code, path)
		assert.Contains(t, response.Body.String(), `cannot create resource \"sessioncommands\"`)
	}
	nodes.namespaces = always("")
	response, _ := post(handler, "alice", commandsInTeam, body)
	assert.Equal(t, http.StatusNotFound, response.Code, "a namespace that does not exist")
	assert.Empty(t, n0.taken())
	response = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, commandsInTeam, strings.NewReader(body))
	r.Header.Set("X-Remote-User", "alice")
	r.Header.Set("Content-Type", "application/yaml")
	handler.ServeHTTP(response, r)
	assert.Equal(t, unsupported, response.Code)
}

// TestCommand_HungNode_SilentAndNotAskedAgain: it delays a command by its timeout, and later requests by nothing.
func TestCommand_HungNode_SilentAndNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		var asked atomic.Int64
		p.standIn("n0:443", func(_ http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			<-r.Context().Done()
		})
		n1 := &sessionNode{accepted: session.Accepted{Names: []string{"s1"}}}
		p.standIn("n1:443", n1.ServeHTTP)
		handler := apiOf(p.asking(Endpoint{Node: "n0", Address: "n0:443"}, Endpoint{Node: "n1", Address: "n1:443"}))
		for _, waits := range []time.Duration{commandTimeout, 0} {
			start := time.Now()
			_, got := post(handler, "alice", commandsInTeam, commandFor(`"verb":"Stop","selection":{}`))
			assert.Equal(t, waits, time.Since(start))
			assert.Equal(t, v1alpha1.SessionCommandStatus{Accepted: 1, Names: []string{"s1"}, SilentNodes: []string{"n0"}}, got.Status)
		}
		assert.Equal(t, int64(1), asked.Load())
		assert.Len(t, n1.taken(), 2)
	})
}

// TestCommand_ManyHungNodes_TimeBounded: nodes that are not asked in time are silent.
func TestCommand_ManyHungNodes_TimeBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var endpoints []Endpoint
		for i := range 1000 {
			endpoints = append(endpoints, Endpoint{Node: fmt.Sprintf("n%04d", i), Address: fmt.Sprintf("n%04d:443", i)})
		}
		start := time.Now()
		_, got := post(apiOf(newPipes(t).asking(endpoints...)), "alice", commandsInTeam, commandFor(`"verb":"Stop","selection":{}`))
		assert.Len(t, got.Status.SilentNodes, 1000)
		assert.Equal(t, commandTime, time.Since(start))
	})
}

// TestCommand_ClockOfANode_ComparedWithoutTheHandshake: with the middle of the exchange.
func TestCommand_ClockOfANode_ComparedWithoutTheHandshake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		for i, ahead := range []time.Duration{0, time.Second} {
			p.standIn(fmt.Sprintf("n%d:443", i), func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				answer(w, http.StatusOK, session.Accepted{Now: time.Now().Add(ahead)})
			})
		}
		nodes := p.asking(Endpoint{Node: "n0", Address: "n0:443"}, Endpoint{Node: "n1", Address: "n1:443"})
		transport, ok := nodes.client.Transport.(*http.Transport)
		require.True(t, ok)
		dial := transport.DialTLSContext
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(time.Second)
			return dial(ctx, network, address)
		}
		_, got := post(apiOf(nodes), "alice", commandsInTeam, commandFor(`"verb":"Stop","selection":{}`))
		assert.Equal(t, []v1alpha1.NodeClock{{Node: "n1", OffsetMilliseconds: 1050}}, got.Status.Clocks)
	})
}

// TestCommand_SeveralAtOnce_Refused: neither a namespace nor all of them can take the slots of nodes, whatever the names of their users are.
func TestCommand_SeveralAtOnce_Refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		nodes := NewNodes(t.TempDir(), func(context.Context) ([]Endpoint, error) {
			<-end
			return nil, nil
		}, always("uid"))
		handler := (&Server{Nodes: nodes, Users: headers{}, Access: all{}}).Handler()
		codes := make(chan int, maxCommands)
		sends := func(by, namespace string) *httptest.ResponseRecorder {
			response, _ := post(handler, by, version1+"/namespaces/"+namespace+"/sessioncommands", stopCommand)
			return response
		}
		for i := range maxCommands {
			go func() { codes <- sends("alice", fmt.Sprint("team", i/namespaceCommands)).Code }()
			synctest.Wait()
			require.Empty(t, codes)
			if i == namespaceCommands-1 {
				for _, by := range []string{"bob", namespaceController} {
					response := sends(by, "team0")
					assert.Equal(t, http.StatusTooManyRequests, response.Code)
					assert.Equal(t, "1", response.Header().Get("Retry-After"))
				}
			}
		}
		assert.Equal(t, http.StatusTooManyRequests, sends("bob", "other").Code)
		close(end)
		for range maxCommands {
			assert.Equal(t, http.StatusCreated, <-codes)
		}
		assert.Equal(t, http.StatusCreated, sends("bob", "team0").Code, "the seats are free again")
	})
}
