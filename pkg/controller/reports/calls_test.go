package reports

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationapi "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// reviews counts reviews; names are allowed alone, as by a role with resourceNames.
type reviews struct {
	asked int
	deny  bool
	name  string
	err   error
}

func (r *reviews) Allowed(_ context.Context, _ user.Info, what authorizationapi.ResourceAttributes) (bool, string, error) {
	r.asked++
	return !r.deny || r.name != "" && what.Name == r.name, "a role", r.err
}

// TestDecisions_SameUser_ReviewedOnce: until the decision ends; a denial ends earlier.
func TestDecisions_SameUser_ReviewedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for deny, holds := range map[bool]time.Duration{false: allowedTime, true: deniedTime} {
			r := &reviews{deny: deny}
			d := NewDecisions(r, always("uid"))
			alice := &user.DefaultInfo{Name: "alice", Groups: []string{"a", "b"}}
			ask := func() {
				allowed, _, err := d.Allowed(t.Context(), alice, attributes("list", resource, "team", ""))
				require.NoError(t, err)
				assert.Equal(t, !deny, allowed)
			}
			ask()
			alice.Groups = []string{"b", "a"}
			time.Sleep(holds - time.Nanosecond)
			ask()
			assert.Equal(t, 1, r.asked)
			time.Sleep(2 * time.Nanosecond)
			ask()
			assert.Equal(t, 2, r.asked)
		}
	})
}

// TestDecisions_AnythingElse_ReviewedAgain: rights may depend on each attribute of a user.
func TestDecisions_AnythingElse_ReviewedAgain(t *testing.T) {
	t.Parallel()
	r := &reviews{}
	d := NewDecisions(r, always("uid"))
	base := user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"a"}, Extra: map[string][]string{"scopes": {"x"}}}
	get := attributes("get", resource, "team", "r1")
	users := []user.DefaultInfo{base, base, base, base, base, base}
	users[1].Name, users[2].UID, users[3].Groups = "bob", "8", []string{"a", "admins"}
	users[4].Extra, users[5].Groups = map[string][]string{"scopes": {"x", "y"}}, []string{`a","b`}
	for i := range users {
		for _, what := range []authorizationapi.ResourceAttributes{
			get, attributes("delete", resource, "team", "r1"), attributes("get", resource+"/"+content, "team", "r1"), attributes("get", resource, "other", "r1"),
			attributes("get", resource, "", ""), attributes("get", sessionKind.resource, "team", "r1"),
		} {
			before := r.asked
			_, _, err := d.Allowed(t.Context(), &users[i], what)
			require.NoError(t, err)
			assert.Equal(t, before+1, r.asked, "user %d: %+v", i, what)
		}
	}
	before := r.asked
	for i := range 1000 {
		_, _, err := d.Allowed(t.Context(), &base, attributes("get", resource, "team", fmt.Sprint("r", i)))
		require.NoError(t, err)
	}
	assert.Equal(t, before, r.asked, "a thousand reports of one namespace cost nothing more")
}

// renewed is a cluster whose namespaces are created again.
type renewed struct {
	always
	now types.UID
}

func (r *renewed) Known(context.Context, string) types.UID { return r.now }

// TestDecisions_NamespaceMadeAgain_ReviewedAgain: rights to a namespace do not apply to a later one of its name.
func TestDecisions_NamespaceMadeAgain_ReviewedAgain(t *testing.T) {
	t.Parallel()
	r, namespaces := &reviews{}, &renewed{now: "first"}
	d := NewDecisions(r, namespaces)
	for _, namespaces.now = range []types.UID{"first", "first", "second", "second"} {
		_, _, err := d.Allowed(t.Context(), &user.DefaultInfo{Name: "alice"}, attributes("list", resource, "team", ""))
		require.NoError(t, err)
	}
	assert.Equal(t, 2, r.asked)
}

// TestDecisions_ResourceNames_Honoured: a role may be about one report.
func TestDecisions_ResourceNames_Honoured(t *testing.T) {
	t.Parallel()
	d := NewDecisions(&reviews{deny: true, name: "r1"}, always("uid"))
	for name, want := range map[string]bool{"r1": true, "r2": false, "": false} {
		allowed, _, err := d.Allowed(t.Context(), &user.DefaultInfo{Name: "alice"}, attributes("get", resource, "team", name))
		require.NoError(t, err)
		assert.Equal(t, want, allowed, name)
	}
}

// TestDecisions_Failure_NotRemembered: the next request asks again.
func TestDecisions_Failure_NotRemembered(t *testing.T) {
	t.Parallel()
	r := &reviews{err: errors.New("no answer")}
	d := NewDecisions(r, always("uid"))
	_, _, err := d.Allowed(t.Context(), &user.DefaultInfo{Name: "alice"}, attributes("list", resource, "team", ""))
	require.Error(t, err)
	r.err = nil
	allowed, _, err := d.Allowed(t.Context(), &user.DefaultInfo{Name: "alice"}, attributes("list", resource, "team", ""))
	require.NoError(t, err)
	assert.True(t, allowed)
}

// slow reviews wait until they are released.
type slow struct{ end chan struct{} }

func (s slow) Allowed(context.Context, user.Info, authorizationapi.ResourceAttributes) (bool, string, error) {
	<-s.end
	return false, "", nil
}

// TestRequests_ManyOfANamespace_OthersRun: waiting requests about one namespace are limited, by user and for all users, and other requests
// do not wait.
func TestRequests_ManyOfANamespace_OthersRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Nodes: NewNodes(t.TempDir(), nil, always("uid")), Users: headers{}, Access: slow{make(chan struct{})}}
		handler, codes := s.Handler(), make(chan int, 2*namespaceCalls)
		sent := 0
		sends := func(by, path string) {
			sent++
			go func() { codes <- request(handler, http.MethodGet, by, path).Code }()
		}
		for range userCalls {
			sends("alice", in("team")+"/a")
		}
		synctest.Wait()
		response := request(handler, http.MethodGet, "alice", in("other"))
		assert.Equal(t, http.StatusTooManyRequests, response.Code)
		assert.Equal(t, "1", response.Header().Get("Retry-After"))
		for i := range namespaceCalls - userCalls {
			sends(fmt.Sprint("system:serviceaccount:team:", i), in("team")+"/a")
		}
		synctest.Wait()
		assert.Equal(t, http.StatusTooManyRequests, request(handler, http.MethodGet, "bob", in("team")).Code)
		assert.Len(t, s.calls.lines.queues[line{namespace: "team"}].running, runningCalls)
		sends("bob", in("other"))
		sends(namespaceController, in("team"))
		synctest.Wait()
		assert.Empty(t, codes)
		assert.Len(t, s.calls.lines.queues[line{namespace: "other"}].running, 1, "it runs")
		assert.Len(t, s.calls.lines.queues[line{system: true}].running, 1, "the namespace controller runs")
		close(s.Access.(slow).end)
		for range sent {
			assert.Equal(t, http.StatusForbidden, <-codes)
		}
		synctest.Wait()
		assert.Empty(t, s.calls.lines.queues)
		assert.Equal(t, http.StatusForbidden, request(handler, http.MethodGet, "alice", in("team")).Code, "every place is free again")
	})
}

// TestCalls_ClientGoes_PlaceGivenBack: a waiting request ends with its client.
func TestCalls_ClientGoes_PlaceGivenBack(t *testing.T) {
	t.Parallel()
	var c calls
	by := seats.Party{Namespace: "team", User: "alice"}
	for range runningCalls {
		_, err := c.enter(t.Context(), by)
		require.NoError(t, err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for range userCalls {
		_, err := c.enter(gone, by)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Equal(t, runningCalls, c.lines.queues[line{namespace: "team"}].members)
}
