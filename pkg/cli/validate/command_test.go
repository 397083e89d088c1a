package validate_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/prism-gpu/prism/test/fakes/kubectlprism"
)

const driver = "gpu.prism.dev"

// server answers like the API server of a cluster with some nodes, whose watches end with pods that have exited.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	nodes   []string
	objects map[string]runtime.Object // pods and claims by path
	deleted int
	// exits reports whether containers exit. created is called before a created pod is answered, started when a pod is watched.
	exits            bool
	created, started func()
}

func newServer(t *testing.T, nodes ...string) *server {
	t.Helper()
	s := &server{nodes: nodes, objects: map[string]runtime.Object{}, exits: true}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/resource.k8s.io/v1"), "/api/v1")
	switch {
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, path)
	case r.Method == http.MethodPost:
		s.create(w, r, path)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		s.deleted++
		s.mu.Unlock()
		answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	case path == "/resourceslices":
		answer(w, s.published())
	case path == "/pods":
		answer(w, s.plugins())
	case strings.HasPrefix(path, "/nodes/"):
		node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.1.4"
		answer(w, node)
	case strings.HasPrefix(path, "/deviceclasses/"):
		answer(w, resourceapi.DeviceClass{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass"}})
	default:
		answer(w, corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}})
	}
}

func (s *server) published() resourceapi.ResourceSliceList {
	list := resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"}}
	for _, node := range s.nodes {
		of := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node}}}
		of.Spec.Devices = []resourceapi.Device{{Name: "gpu-aaaaaaaa", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "parentUUID": {StringValue: new("GPU-a")},
		}}}
		list.Items = append(list.Items, of)
	}
	return list
}

// plugins returns the plugins of the nodes, and the plugin of another driver on a node without GPUs.
func (s *server) plugins() corev1.PodList {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for i, node := range append([]string{"other"}, s.nodes...) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prism", Name: "plugin-" + node}, Spec: corev1.PodSpec{NodeName: node}}
		p.Spec.Containers = []corev1.Container{{Image: "prism:1", Env: []corev1.EnvVar{{Name: "PRISM_DRIVER_NAME", Value: []string{"other.example.com", driver}[min(i, 1)]}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		list.Items = append(list.Items, p)
	}
	return list
}

// create stores a pod or a claim, in the state after the container has exited.
func (s *server) create(w http.ResponseWriter, r *http.Request, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(path, "/pods") {
		pod := &corev1.Pod{}
		decode(r, pod)
		pod.UID = types.UID("uid-" + pod.Name)
		pod.APIVersion, pod.Kind = "v1", "Pod"
		if s.created != nil {
			s.created()
		}
		answer(w, pod)
		state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"checks":[{"name":"cuInit"}]}`}}
		if !s.exits {
			state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: state}}
		s.objects[path+"/"+pod.Name] = pod
		return
	}
	claim := &resourceapi.ResourceClaim{}
	decode(r, claim)
	claim.APIVersion, claim.Kind = "resource.k8s.io/v1", "ResourceClaim"
	answer(w, claim)
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Device: "gpu-aaaaaaaa"}},
	}}
	s.objects[path+"/"+claim.Name] = claim
}

// decode decodes a request in any encoding of the API.
func decode(r *http.Request, into runtime.Object) {
	body, _ := io.ReadAll(r.Body)
	_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
}

// watch sends the object with the name, and keeps the connection.
func (s *server) watch(w http.ResponseWriter, r *http.Request, path string) {
	s.mu.Lock()
	object := s.objects[path+"/"+strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")]
	s.mu.Unlock()
	answer(w, map[string]any{"type": "MODIFIED", "object": object})
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	if s.started != nil && strings.HasSuffix(path, "/pods") {
		s.started()
	}
	<-r.Context().Done()
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// run runs kubectl prism validate.
func (s *server) run(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, _, err := kubectlprism.Run(ctx, t, s.URL, append([]string{"validate"}, args...)...)
	return out, err
}

func TestValidate_AllNodes_LastLine(t *testing.T) {
	t.Parallel()
	s := newServer(t, "n1", "n2")
	out, err := s.run(t.Context(), t, "--all")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	require.Len(t, lines, 11, out)
	assert.Contains(t, lines, "n1: claim: ok: gpu-aaaaaaaa")
	assert.Contains(t, lines, "n2: cuda: ok: cuInit")
	assert.Equal(t, "all validations are successful", lines[10])
	assert.Equal(t, 4, s.deleted, "a pod and a claim on each node")
}

func TestValidate_Interrupted_DeletedWithALiveContext(t *testing.T) {
	t.Parallel()
	s := newServer(t, "n1")
	ctx, stop := context.WithCancel(t.Context())
	s.exits, s.started = false, stop
	out, err := s.run(ctx, t, "n1")
	require.EqualError(t, err, "validation of node n1 failed")
	assert.NotContains(t, out, "successful")
	assert.Contains(t, out, "interrupted")
	assert.Equal(t, 2, s.deleted)
}

// TestValidate_InterruptedDuringCreation_Deleted: the API server has created the pod.
func TestValidate_InterruptedDuringCreation_Deleted(t *testing.T) {
	t.Parallel()
	s := newServer(t, "n1")
	ctx, stop := context.WithCancel(t.Context())
	s.created = stop
	out, err := s.run(ctx, t, "n1")
	require.EqualError(t, err, "validation of node n1 failed")
	assert.Contains(t, out, "interrupted")
	assert.Equal(t, 2, s.deleted)
}

func TestValidate_BadArguments_OneSentence(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for args, want := range map[string]string{
		"":                             "either nodes or --all are required; kubectl prism gpu list prints the nodes",
		"n1 --all":                     "either nodes or --all are required; kubectl prism gpu list prints the nodes",
		"n1 n2 --gpu 0":                "--gpu: requires one node",
		"n1 --timeout 0s":              "--timeout: must be greater than 0, got 0s",
		"--all --driver-name gpu.x.io": "no node has the kubelet plugin of driver gpu.x.io: install the chart of Prism, or set --driver-name",
	} {
		_, err := s.run(t.Context(), t, strings.Fields(args)...)
		assert.EqualError(t, err, want, args)
	}
}
