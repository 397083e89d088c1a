package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/reports"
)

const driver = "gpu.prism.dev"

// Paths of lists.
const (
	pathSlices  = "/apis/resource.k8s.io/v1/resourceslices"
	pathClaims  = "/apis/resource.k8s.io/v1/resourceclaims"
	pathClasses = "/apis/resource.k8s.io/v1/deviceclasses"
	pathRules   = "/apis/resource.k8s.io/v1/devicetaintrules"
	pathNodes   = "/api/v1/nodes"
	pathPods    = "/api/v1/pods"
)

// server answers like an API server.
type server struct {
	*httptest.Server

	mu sync.Mutex
	// lists are the objects by the path of their list; a path without an entry does not exist.
	lists map[string][]runtime.Object
	// json answers in JSON only.
	json bool
	// deny are paths that the user may not request.
	deny map[string]bool
	// expire is the number of continue tokens that are refused, newWatch of watches.
	expire, expireWatch int
	// requests are the requests; the method of a watch is "WATCH".
	requests []string
	// each is called before a request is answered; may be nil.
	each func(request string)
	// streams are the open watches, by path.
	streams map[string]chan metav1.WatchEvent
	opened  chan string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{
		lists: map[string][]runtime.Object{pathSlices: nil, pathClaims: nil, pathClasses: nil, pathRules: nil, pathNodes: nil, pathPods: nil},
		deny:  map[string]bool{}, streams: map[string]chan metav1.WatchEvent{}, opened: make(chan string, 100),
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// client returns a client of the server.
func (s *server) client(t *testing.T) *cluster.Client {
	t.Helper()
	config := &rest.Config{Host: s.URL, QPS: -1}
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	partial, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	return &cluster.Client{Interface: typed, Metadata: partial, Driver: driver, Namespace: "team", Clock: &reports.Clock{}}
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	method := r.Method
	if query.Get("watch") != "" {
		method = "WATCH"
	}
	request := method + " " + r.URL.Path
	s.mu.Lock()
	s.requests = append(s.requests, request+"?"+r.URL.RawQuery)
	each, denied := s.each, s.deny[r.URL.Path] || s.deny[request]
	s.mu.Unlock()
	if each != nil {
		each(request)
	}
	s.mu.Lock()
	list, found := s.lists[r.URL.Path]
	s.mu.Unlock()
	switch {
	case denied:
		s.status(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.URL.Path == "/version":
		_, _ = w.Write([]byte(`{"major":"1","minor":"35+"}`))
	case !found:
		if object := s.find(r.URL.Path); object != nil {
			s.answer(w, r, http.StatusOK, object)
			return
		}
		s.status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case method == "WATCH":
		s.watch(w, r)
	default:
		s.list(w, r, list)
	}
}

// find returns an object by its path.
func (s *server) find(path string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	for list, objects := range s.lists {
		for _, object := range objects {
			if list+"/"+object.(metav1.Object).GetName() == path {
				return object
			}
		}
	}
	return nil
}

// list answers with a page.
func (s *server) list(w http.ResponseWriter, r *http.Request, all []runtime.Object) {
	query := r.URL.Query()
	s.mu.Lock()
	expired := query.Get("continue") != "" && s.expire > 0
	if expired {
		s.expire--
	}
	s.mu.Unlock()
	if expired {
		s.status(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	if only := fields.ParseSelectorOrDie(query.Get("fieldSelector")); !only.Empty() {
		all = slices.DeleteFunc(slices.Clone(all), func(o runtime.Object) bool {
			spec := &o.(*resourceapi.ResourceSlice).Spec
			return !only.Matches(fields.Set{
				resourceapi.ResourceSliceSelectorDriver: spec.Driver, resourceapi.ResourceSliceSelectorNodeName: ptr.Deref(spec.NodeName, ""),
			})
		})
	}
	first, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	meta := metav1.ListMeta{ResourceVersion: "10"}
	last := len(all)
	if limit > 0 && first+limit < last {
		last = first + limit
		meta.Continue = strconv.Itoa(last)
	}
	s.answer(w, r, http.StatusOK, listOf(r.URL.Path, meta, all[first:last]))
}

// listOf returns a list object.
func listOf(path string, meta metav1.ListMeta, items []runtime.Object) runtime.Object {
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "resourceslices":
		return &resourceapi.ResourceSliceList{ListMeta: meta, Items: values[resourceapi.ResourceSlice](items)}
	case "resourceclaims":
		return &resourceapi.ResourceClaimList{ListMeta: meta, Items: values[resourceapi.ResourceClaim](items)}
	case "deviceclasses":
		return &resourceapi.DeviceClassList{ListMeta: meta, Items: values[resourceapi.DeviceClass](items)}
	case "devicetaintrules":
		return &resourceapi.DeviceTaintRuleList{ListMeta: meta, Items: values[resourceapi.DeviceTaintRule](items)}
	case "nodes":
		return &corev1.NodeList{ListMeta: meta, Items: values[corev1.Node](items)}
	default:
		return &corev1.PodList{ListMeta: meta, Items: values[corev1.Pod](items)}
	}
}

func values[T any](items []runtime.Object) (all []T) {
	for _, item := range items {
		all = append(all, *item.(any).(*T))
	}
	return all
}

// answer writes an object in the encoding that the request prefers.
func (s *server) answer(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	if s.json || !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	w.WriteHeader(code)
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, w)
}

func (s *server) status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code), Message: string(reason),
	})
}

// watch streams events until the test ends, or refuses.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	expired := s.expireWatch > 0
	if expired {
		s.expireWatch--
	}
	events := make(chan metav1.WatchEvent)
	s.streams[r.URL.Path] = events
	s.mu.Unlock()
	if expired {
		s.status(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	kind := "application/json"
	encode := func(event metav1.WatchEvent) error { return json.NewEncoder(w).Encode(event) }
	if !s.json {
		kind = "application/vnd.kubernetes.protobuf;stream=watch"
		encode = func(event metav1.WatchEvent) error { return encodeEvent(w, event) }
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	s.opened <- r.URL.Path + " " + r.URL.Query().Get("resourceVersion")
	for {
		select {
		case event := <-events:
			if err := encode(event); err != nil {
				panic(err)
			}
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// encodeEvent writes an event as a frame in protobuf.
func encodeEvent(w io.Writer, event metav1.WatchEvent) error {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(event.Object.Object, &object); err != nil {
		return err
	}
	event.Object = runtime.RawExtension{Raw: object.Bytes()}
	return protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(&event, protobuf.LengthDelimitedFramer.NewFrameWriter(w))
}

// send sends an event to the watch of a path.
func (s *server) send(t *testing.T, path, kind string, object runtime.Object) {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	require.NoError(t, err)
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	s.mu.Lock()
	events := s.streams[path]
	s.mu.Unlock()
	select {
	case events <- metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: object}}:
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing watches", path)
	}
}

// asked returns the requests of a path.
func (s *server) asked(prefix string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if strings.HasPrefix(request, prefix+"?") {
			found = append(found, request)
		}
	}
	return found
}

// published returns a ResourceSlice with a GPU.
func published(node int, of string) *resourceapi.ResourceSlice {
	name := fmt.Sprint("n", node)
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + of, ResourceVersion: "7"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: of, NodeName: &name, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{Name: fmt.Sprintf("gpu-%08x", node), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "index": {IntValue: new(int64(0))}, "uuid": {StringValue: new(fmt.Sprint("GPU-", node))},
		}}},
	}}
}

// use returns a claim that holds the GPU of a node.
func use(namespace, name string, node int) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: driver, Pool: fmt.Sprint("n", node), Device: fmt.Sprintf("gpu-%08x", node), Request: "r"},
	}}}
	return claim
}
