package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// waits are two sessions and a claim, and a command.
type waits struct {
	commanded session.Command
	err       error
}

func (*waits) List(namespace, uid string) []session.Session {
	return []session.Session{{ID: "ie", Namespace: namespace, NamespaceUID: uid}, {ID: "id", Namespace: namespace, NamespaceUID: uid}}
}

func (*waits) Claims(namespace, _ string) []session.Claim {
	return []session.Claim{{Claim: "c", Namespace: namespace, Armed: true}}
}

func (w *waits) Command(_ context.Context, c session.Command) (session.Accepted, error) {
	w.commanded = c
	return session.Accepted{Names: []string{"id"}, Refused: []session.Refusal{{Name: "ie", Reason: "<r>"}}, Now: time.Unix(1, 2).UTC()}, w.err
}

// local sends a request to a server with these sessions, without a network.
func local(t *testing.T, of *waits, method, path, body string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	New(Options{Sessions: of, Busy: func(err error) bool { return errors.Is(err, errBusy) }}).handler().
		ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String(), w.Header()
}

func TestSessions_Pages_AsReports(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{
		"namespace=n&namespaceUID=u": {"id", "ie"}, "namespace=n&id=ie": {"ie"}, "namespace=n&limit=1": {"id"}, "namespace=n&after=id&limit=9": {"ie"},
		"namespace=n&after=ie": {}, "namespace=n&id=other": {},
	} {
		began := time.Now()
		code, body, _ := local(t, &waits{}, http.MethodGet, "/v1/sessions?"+query, "")
		require.Equal(t, http.StatusOK, code)
		var got struct {
			Sessions []session.Session
			Claims   []session.Claim
			Now      time.Time
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got), query)
		ids := []string{}
		for _, one := range got.Sessions {
			ids = append(ids, one.ID)
			assert.Equal(t, "n", one.Namespace)
		}
		assert.Equal(t, want, ids, query)
		assert.Contains(t, body, `"sessions":[`)
		assert.False(t, got.Now.Before(began.Add(-time.Second)) || got.Now.After(time.Now().Add(time.Second)), got.Now)
		first := !strings.Contains(query, "id=") && !strings.Contains(query, "after=")
		assert.Equal(t, first, len(got.Claims) == 1, query)
	}
}

func TestCommand_Body_CarriedOutOrRefused(t *testing.T) {
	t.Parallel()
	const accepted = `{"names":["id"],"refused":[{"name":"ie","reason":"<r>"}],"now":"1970-01-01T00:00:01.000000002Z"}`
	large := `{"sessions":["` + strings.Repeat("x", maxCommand) + `"]}`
	for name, c := range map[string]struct {
		body, says string
		err        error
		code       int
	}{
		"carried out":                  {body: `{"verb":"Stop","namespace":"n"}`, code: 200, says: accepted},
		"fields of a later controller": {body: `{"verb":"Stop","namespace":"n","later":{}}`, code: 200},
		"invalid":                      {body: `{}`, err: fmt.Errorf("%w: x", session.ErrInvalid), code: 400, says: `"error":"invalid command: x"`},
		"no JSON":                      {body: `{`, code: 400, says: `"error":"invalid command: `},
		"another type":                 {body: `{"verb":1}`, code: 400, says: `"error":"invalid command: `},
		"a time of another kind":       {body: `{"at":"x"}`, code: 400, says: `"error":"invalid command: `},
		"too large":                    {body: large, code: 413, says: `"error":"a command must be at most 262144 bytes"`},
		"another process":              {body: `{}`, err: errBusy, code: 503, says: `"error":"busy"`},
		"failed":                       {body: `{}`, err: errors.New("x"), code: 500, says: `"error":"x"`},
	} {
		of := &waits{err: c.err}
		code, body, header := local(t, of, http.MethodPost, "/v1/commands", c.body)
		assert.Equal(t, c.code, code, name)
		assert.Contains(t, body, c.says, name)
		if c.code == http.StatusOK {
			assert.Equal(t, "n", of.commanded.Namespace)
		}
		assert.Equal(t, c.code == http.StatusServiceUnavailable, header.Get("Retry-After") != "")
	}
	code, _, _ := local(t, &waits{}, http.MethodGet, "/v1/commands", "")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
}
