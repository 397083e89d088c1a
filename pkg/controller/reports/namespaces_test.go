package reports

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestReports_NamespaceMadeAgain_FormerOnesNotSeen: for any answer of a node. Reports of earlier plugins, which do not send the namespace's
// UID, are listed.
func TestReports_NamespaceMadeAgain_FormerOnesNotSeen(t *testing.T) {
	t.Parallel()
	f := &fakeNode{content: map[string]string{"former": "secret", "now": "content", "older": "content"}}
	for id, uid := range map[string]string{"former": "another", "now": "uid", "older": ""} {
		r := stored("n0", "team", id, f.content[id])
		r.NamespaceUID = uid
		f.reports = append(f.reports, r)
	}
	endpoints, certificate := f.serve(t, "n0")
	server := api(t, endpoints, certificate)
	for path, by := range map[string]string{inTeam: "alice", inTeam + "?fieldSelector=metadata.name=former": "alice", version1 + "/reports": "root"} {
		response, body := do(t, server, http.MethodGet, by, path)
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		assert.NotContains(t, body, "former", path)
		assert.Equal(t, path != inTeam+"?fieldSelector=metadata.name=former", len(body) > 1000, path)
	}
	for _, c := range [][2]string{{http.MethodGet, ""}, {http.MethodGet, "/content"}, {http.MethodDelete, ""}} {
		response, body := do(t, server, c[0], "alice", inTeam+"/former"+c[1])
		assert.Equal(t, http.StatusNotFound, response.StatusCode, body)
		assert.NotContains(t, body, "secret")
		for _, id := range []string{"now", "older"} {
			response, body = do(t, server, c[0], "alice", inTeam+"/"+id+c[1])
			assert.Equal(t, http.StatusOK, response.StatusCode, body)
		}
	}
	assert.Len(t, f.List("", ""), 1, "the former one's is left to the node")
}

// TestList_NamespaceUID_SentToNodes: a node with a different UID checks which is right.
func TestList_NamespaceUID_SentToNodes(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	sent := make(chan string, 2)
	address := a.standIn(t, func(w http.ResponseWriter, r *http.Request) {
		sent <- r.URL.Query().Get("namespaceUID")
		answer(w, http.StatusOK, map[string]any{"reports": []report.Report{}})
	})
	nodes := withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) {
		return []Endpoint{{Node: "n0", Address: address}}, nil
	}, always("uid")))
	for _, namespace := range []string{"team", ""} {
		_, err := list[reportItem](t.Context(), nodes, Query{Namespace: namespace})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"uid", ""}, []string{<-sent, <-sent})
}

// TestList_NoNamespace_Empty: no node is asked, because a node of an earlier version may store reports of a former namespace.
func TestList_NoNamespace_Empty(t *testing.T) {
	t.Parallel()
	nodes := NewNodes(t.TempDir(), func(context.Context) ([]Endpoint, error) {
		assert.Fail(t, "nodes are asked")
		return nil, nil
	}, always(""))
	handler := apiOf(nodes)
	assert.Equal(t, http.StatusOK, request(handler, http.MethodGet, "alice", inTeam).Code)
	assert.Equal(t, http.StatusNotFound, request(handler, http.MethodGet, "alice", inTeam+"/a").Code)
}

// reading returns a client with a namespace of this name; it counts each get of another one.
func reading(name string, uid types.UID, missed *int, failure error) client.Reader {
	return fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
			if key.Name != name {
				*missed++
			}
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, into, o...)
		}}).Build()
}

// TestClusterNamespaces_NotInMemory_AskedOfTheAPIServer: the namespace controller deletes the reports of a namespace that is not cached
// yet.
func TestClusterNamespaces_NotInMemory_AskedOfTheAPIServer(t *testing.T) {
	t.Parallel()
	cached, direct := 0, 0
	of := ClusterNamespaces{Cached: reading("known", "1", &cached, nil), Direct: reading("later", "2", &direct, nil)}
	for name, want := range map[string]types.UID{"known": "1", "later": "2", "none": ""} {
		uid, err := of.Current(t.Context(), name)
		require.NoError(t, err, name)
		assert.Equal(t, want, uid, name)
	}
	assert.Equal(t, []int{2, 1}, []int{cached, direct})
	assert.Equal(t, types.UID("1"), of.Known(t.Context(), "known"))
	assert.Empty(t, of.Known(t.Context(), "later"))
	assert.Equal(t, 1, direct)

	of.Direct = reading("later", "2", &direct, context.DeadlineExceeded)
	_, err := of.Current(t.Context(), "later")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s := &Server{Nodes: NewNodes(t.TempDir(), nil, of), Users: headers{}, Access: all{}}
	response := httptest.NewRecorder()
	asked := httptest.NewRequest(http.MethodGet, in("later"), http.NoBody)
	asked.Header.Set("X-Remote-User", "alice")
	s.Handler().ServeHTTP(response, asked)
	assert.Equal(t, http.StatusInternalServerError, response.Code, "an empty list would be taken for all")
}

// TestNamespaceCache_Transform_KeepsTheUIDAlone: a cluster contains thousands of namespaces.
func TestNamespaceCache_Transform_KeepsTheUIDAlone(t *testing.T) {
	t.Parallel()
	kept, err := NamespaceCache().Transform(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"a": "b"}},
	})
	require.NoError(t, err)
	assert.Equal(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", ResourceVersion: "7"}}, kept)
}
