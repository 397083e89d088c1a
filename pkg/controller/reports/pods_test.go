package reports

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// pluginPod returns a running pod of the plugin on a node.
func pluginPod(node, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "plugin-" + node, Labels: map[string]string{"a": "plugin"}}, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address},
	}
}

// announcement returns the announcement of a driver's node.
func announcement(driver, node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prism", Name: driver + "." + node, Labels: map[string]string{v1alpha1.AnnouncementLabel: driver},
	}}
}

func pluginsOf(objects ...client.Object) Plugins {
	return Plugins{
		Reader:    fake.NewClientBuilder().WithObjects(objects...).Build(),
		Namespace: "prism", DriverName: "gpu.example.com", Selector: labels.SelectorFromSet(labels.Set{"a": "plugin"}), Port: 8444,
	}
}

// TestPlugins_NodeWithoutPod_Silent: a node that stores reports is known whether or not its plugin runs; a node without reports and pod is
// no longer a node of the driver.
func TestPlugins_NodeWithoutPod_Silent(t *testing.T) {
	t.Parallel()
	elsewhere := announcement("gpu.example.com", "n5")
	elsewhere.Namespace = "other"
	foreign := announcement("gpu.example.com", "n6")
	foreign.Name = "kube-scheduler"
	plugins := pluginsOf(pluginPod("n0", "10.0.0.1"), pluginPod("n1", "10.0.0.2"), announcement("gpu.example.com", "n1"), announcement("gpu.example.com", "n2.example.com"),
		announcement("another.example.com", "n4"), elsewhere, foreign)
	found, err := plugins.Endpoints(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Endpoint{{"n0", "10.0.0.1:8444"}, {"n1", "10.0.0.2:8444"}, {Node: "n2.example.com"}}, found)

	nodes := NewNodes(t.TempDir(), pluginsOf(announcement("gpu.example.com", "n2")).Endpoints, always("uid"))
	list, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
	require.NoError(t, err)
	assert.Equal(t, []string{"n2"}, list.Silent)
	response := request(apiOf(nodes), http.MethodGet, "alice", inTeam+"/a")
	assert.Equal(t, http.StatusServiceUnavailable, response.Code)
	assert.Contains(t, response.Body.String(), "these nodes did not answer: n2")
}

// TestList_NamespaceDeleted_LeftReportsReported: the namespace controller ignores warnings, and a namespace does not wait for a node that
// may never answer.
func TestList_NamespaceDeleted_LeftReportsReported(t *testing.T) {
	t.Parallel()
	plugins, recorder := pluginsOf(announcement("gpu.example.com", "n2"), pluginPod("n3", "")), events.NewFakeRecorder(10)
	s := &Server{Nodes: NewNodes(t.TempDir(), plugins.Endpoints, always("uid")), Users: headers{}, Access: all{}, Left: left{plugins, recorder}.report}
	for _, c := range []struct{ by, path string }{{"alice", in("team")}, {"root", version1 + "/reports"}, {namespaceController, version1 + "/reports"}} {
		require.Equal(t, http.StatusOK, request(s.Handler(), http.MethodGet, c.by, c.path).Code)
		assert.Empty(t, recorder.Events, c.by)
	}
	response := request(s.Handler(), http.MethodGet, namespaceController, in("team"))
	assert.Equal(t, http.StatusOK, response.Code)
	require.Len(t, recorder.Events, 1, "the other silent node keeps no reports")
	text := <-recorder.Events
	assert.Contains(t, text, "Warning ReportsLeft Reports of namespace team may remain on node n2, which did not answer while the namespace was deleted")

	plugins.Reader = failingReader{}
	left{plugins, recorder}.report(t.Context(), "team", []string{"n2"})
	assert.Empty(t, recorder.Events)
	_, err := plugins.Endpoints(t.Context())
	require.ErrorIs(t, err, assert.AnError)
}

// failingReader is a cache that fails.
type failingReader struct{}

func (failingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return assert.AnError
}

func (failingReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return assert.AnError
}
