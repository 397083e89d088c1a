package reports

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationapi "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// all allows everything.
type all struct{}

func (all) Allowed(context.Context, user.Info, authorizationapi.ResourceAttributes) (bool, string, error) {
	return true, "", nil
}

func in(namespace string) string { return version1 + "/namespaces/" + namespace + "/reports" }

// request answers one request of a user.
func request(handler http.Handler, method, by, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("X-Remote-User", by)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, r)
	return response
}

const (
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	robot               = "system:serviceaccount:team:robot"
)

// TestList_SeveralAtOnce_Refused: the resources of lists are limited, and neither a user nor a namespace can take all of them, or the
// reserved ones of the cluster's controllers.
func TestList_SeveralAtOnce_Refused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		nodes := NewNodes(t.TempDir(), func(context.Context) ([]Endpoint, error) {
			<-end
			return nil, nil
		}, always("uid"))
		handler := (&Server{Nodes: nodes, Users: headers{}, Access: all{}}).Handler()
		codes := make(chan int, maxLists)
		begins := func(by, path string) {
			go func() { codes <- request(handler, http.MethodGet, by, path).Code }()
			synctest.Wait()
			require.Empty(t, codes, "%s lists %s", by, path)
		}
		refused := func(by, path string) {
			response := request(handler, http.MethodGet, by, path)
			assert.Equal(t, http.StatusTooManyRequests, response.Code, "%s lists %s", by, path)
			assert.Equal(t, "1", response.Header().Get("Retry-After"))
		}
		begins("alice", in("team"))
		begins(robot, in("team"))
		refused("bob", in("team")) // two of the namespace, by any users
		begins("alice", in("other"))
		refused("alice", in("third")) // two of the user
		begins("root", version1+"/reports")
		for _, by := range []string{"bob", "system:serviceaccount:team:kube-system:x", "system:node:n0", "system:anonymous"} {
			refused(by, in("fourth"))
		}
		begins(namespaceController, in("team"))
		refused(user.KubeControllerManager, in("team"))
		close(end)
		for range maxLists {
			assert.Equal(t, http.StatusOK, <-codes)
		}
		for _, by := range []string{"alice", robot, namespaceController, "bob"} {
			assert.Equal(t, http.StatusOK, request(handler, http.MethodGet, by, in("team")).Code)
		}
	})
}
