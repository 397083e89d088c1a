package gpus_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/test/fakes/kubectlprism"
)

const driver = "gpu.prism.dev"

// serverTime is the clock of the API server, far from the clock of this machine.
var serverTime = time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)

// server answers like an API server with node n1 and its plugin, which taints the GPUs by the annotations of the node.
type server struct {
	*httptest.Server

	mu          sync.Mutex
	annotations map[string]string
	claims      []resourceapi.ResourceClaim
	pods        map[string]*corev1.Pod
	noPlugin    bool
	// deny are requests that the user may not send, such as "PATCH /api/v1/nodes/n1".
	deny     map[string]bool
	requests []string
	// each is called for each request; may be nil.
	each func(method, path string)
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{annotations: map[string]string{"other": "x"}, pods: map[string]*corev1.Pod{}, deny: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Date", serverTime.Format(http.TimeFormat))
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	if s.each != nil {
		s.each(r.Method, r.URL.Path)
	}
	if s.deny[r.Method+" "+r.URL.Path] {
		answer(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "forbidden"})
		return
	}
	node := metav1.ObjectMeta{Name: "n1", Annotations: s.annotations}
	partial := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: node}
	switch path := r.URL.Path; {
	case path == "/api/v1/nodes/n1" && r.Method == http.MethodPatch:
		s.patch(r)
		answer(w, http.StatusOK, corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: node})
	case path == "/api/v1/nodes/n1":
		answer(w, http.StatusOK, partial)
	case path == "/api/v1/nodes":
		answer(w, http.StatusOK, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Items: []metav1.PartialObjectMetadata{partial},
		})
	case path == "/apis/resource.k8s.io/v1/resourceslices":
		list := resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"}}
		switch selector := r.URL.Query().Get("fieldSelector"); {
		case strings.Contains(selector, "spec.driver="+driver):
			list.Items = s.published()
		case !strings.Contains(selector, "spec.driver="):
			list.Items = []resourceapi.ResourceSlice{{Spec: resourceapi.ResourceSliceSpec{Driver: "gpu.example.com"}}}
		}
		answer(w, http.StatusOK, list)
	case path == "/apis/resource.k8s.io/v1/resourceclaims":
		answer(w, http.StatusOK, resourceapi.ResourceClaimList{
			TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimList"}, Items: s.claims,
		})
	case s.pods[path] != nil:
		answer(w, http.StatusOK, s.pods[path])
	default:
		answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: path + " not found"})
	}
}

// patch applies a merge patch to the annotations.
func (s *server) patch(r *http.Request) {
	var change struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &change) != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" || r.URL.Query().Has("dryRun") {
		return
	}
	for key, value := range change.Metadata.Annotations {
		if value == nil {
			delete(s.annotations, key)
			continue
		}
		s.annotations[key] = *value
	}
}

// published returns two GPUs.
func (s *server) published() []resourceapi.ResourceSlice {
	list := resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: "n1"}}}
	for i, id := range []string{"aaaaaaaa", "bbbbbbbb"} {
		d := resourceapi.Device{Name: "gpu-" + id, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "parentUUID": {StringValue: new("GPU-" + id)}, "uuid": {StringValue: new("GPU-" + id)},
			"index": {IntValue: new(int64(i))}, "productName": {StringValue: new("H100")}, "driverVersion": {VersionValue: new("580.95.5")},
		}}
		_, one := s.annotations["maintenance."+driver+"/gpu-"+id]
		_, all := s.annotations["maintenance."+driver+"/all"]
		if (one || all) && !s.noPlugin {
			d.Taints = []resourceapi.DeviceTaint{{Key: driver + "/maintenance", Effect: "NoSchedule", TimeAdded: &metav1.Time{Time: time.Now().Add(-time.Hour)}}}
		}
		list.Spec.Devices = append(list.Spec.Devices, d)
	}
	return []resourceapi.ResourceSlice{list}
}

// use allocates a GPU to a claim of pod team/train.
func (s *server) use(device string) {
	c := resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Pool: "n1", Device: device}},
	}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "u"}}
	s.claims = append(s.claims, c)
	s.pods["/api/v1/namespaces/team/pods/train"] = &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "u"},
	}
}

// sent returns the number of requests with that beginning.
func (s *server) sent(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// run runs kubectl prism gpu.
func (s *server) run(ctx context.Context, t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	return kubectlprism.Run(ctx, t, s.URL, append([]string{"gpu"}, args...)...)
}

func TestDrain_OneGPU_AnnotatedTaintedListed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.use("gpu-bbbbbbbb")
	out, _, err := s.run(t.Context(), t, "drain", "n1", "1", "--reason", "ticket 4711")
	require.NoError(t, err)
	assert.Equal(t, "GPU gpu-bbbbbbbb of node n1 drained\n", out)
	assert.Equal(t, map[string]string{"other": "x", "maintenance." + driver + "/gpu-bbbbbbbb": "ticket 4711"}, s.annotations)

	out, errOut, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Empty(t, errOut)
	assert.Equal(t, "NODE   GPU            INDEX   PRODUCT   DEVICES   CLAIMS   TAINTS                   REASON        SINCE\n"+
		"n1     gpu-aaaaaaaa   0       H100      gpu 1     0        <none>                   <none>        <none>\n"+
		"n1     gpu-bbbbbbbb   1       H100      gpu 1     1        maintenance:NoSchedule   ticket 4711   60m\n", out)
	assert.Equal(t, 1, s.sent("GET /apis/resource.k8s.io/v1/resourceclaims?limit=500"))
	out, _, err = s.run(t.Context(), t, "list", "n1", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"maintenance": "ticket 4711"`)

	out, _, err = s.run(t.Context(), t, "undrain", "n1", "GPU-bbbbbbbb")
	require.NoError(t, err)
	assert.Equal(t, "GPU gpu-bbbbbbbb of node n1 undrained\n", out)
	assert.Equal(t, map[string]string{"other": "x"}, s.annotations)
}

func TestDrain_All_UndrainOfOneRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	out, _, err := s.run(t.Context(), t, "drain", "n1", "--all", "--evict")
	require.NoError(t, err)
	assert.Equal(t, "all GPUs of node n1 drained\nno claims left: all GPUs of node n1\n", out)
	_, _, err = s.run(t.Context(), t, "undrain", "n1", "0")
	require.EqualError(t, err, "GPU gpu-aaaaaaaa of node n1 stays drained, because all GPUs of the node are; kubectl prism gpu undrain n1 --all returns "+
		"them to service")
	_, _, err = s.run(t.Context(), t, "undrain", "n1", "--all")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"other": "x"}, s.annotations)
}

// TestDrain_Ended_SaysHowToUndo: the pod has no controller, so it is waited for.
func TestDrain_Ended_SaysHowToUndo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.use("gpu-aaaaaaaa")
	_, _, err := s.run(t.Context(), t, "drain", "n1", "0", "--evict", "--timeout", "100ms")
	require.EqualError(t, err, "claims still use GPU gpu-aaaaaaaa of node n1 after 100ms; to return GPU gpu-aaaaaaaa of node n1 to service, run "+
		"kubectl prism gpu undrain n1 gpu-aaaaaaaa")
	ctx, stop := context.WithCancel(t.Context())
	s.each = func(_, path string) {
		if strings.HasSuffix(path, "/pods/train") {
			stop()
		}
	}
	_, _, err = s.run(ctx, t, "drain", "n1", "0", "--evict")
	require.EqualError(t, err, "interrupted; to return GPU gpu-aaaaaaaa of node n1 to service, run kubectl prism gpu undrain n1 gpu-aaaaaaaa")
}

// TestDrain_NoTaint_NothingEvicted: without the taint, pods could return to the GPU.
func TestDrain_NoTaint_NothingEvicted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.use("gpu-aaaaaaaa")
	s.noPlugin = true
	_, _, err := s.run(t.Context(), t, "drain", "n1", "0", "--evict", "--force", "--timeout", "100ms")
	require.EqualError(t, err, "the kubelet plugin of node n1 has not tainted the devices yet, so no pod was evicted; kubectl prism validate n1 checks the "+
		"plugin; to return GPU gpu-aaaaaaaa of node n1 to service, run kubectl prism gpu undrain n1 gpu-aaaaaaaa")
	assert.Zero(t, s.sent("POST"))
	out, _, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Contains(t, out, "(the kubelet plugin has not tainted the GPU yet)")
}

func TestDrain_DryRun_NothingChanged(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.use("gpu-aaaaaaaa")
	out, _, err := s.run(t.Context(), t, "drain", "n1", "0", "--evict", "--force", "--dry-run")
	require.NoError(t, err)
	assert.Equal(t, "GPU gpu-aaaaaaaa of node n1 would be drained (dry run)\npod team/train would be evicted (dry run)\n", out)
	assert.Equal(t, map[string]string{"other": "x"}, s.annotations)
	assert.Zero(t, s.sent("POST"))
}

func TestDrain_NotAllowed_NamesTheRight(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deny["PATCH /api/v1/nodes/n1"] = true
	_, _, err := s.run(t.Context(), t, "drain", "n1", "0")
	require.EqualError(t, err, "annotating node n1: the API server denied access: forbidden; an administrator can allow patch on nodes")
	s.deny["GET /apis/resource.k8s.io/v1/resourceclaims"] = true
	out, errOut, err := s.run(t.Context(), t, "list")
	require.NoError(t, err)
	assert.Contains(t, out, "<unknown>")
	assert.Contains(t, errOut, "allow list on resourceclaims of resource.k8s.io in all namespaces; numbers of claims are missing")
}

func TestRelease_Drained_UntilATimeOfTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, _, err := s.run(t.Context(), t, "release", "n1", "0")
	require.ErrorContains(t, err, "GPU gpu-aaaaaaaa of node n1 is not drained")
	s.annotations["maintenance."+driver+"/all"] = ""
	out, _, err := s.run(t.Context(), t, "release", "n1", "0", "--for", "3m")
	require.NoError(t, err)
	assert.Equal(t, "2031-02-03T04:08:06Z", s.annotations["release."+driver+"/gpu-aaaaaaaa"])
	assert.Contains(t, out, "GPU gpu-aaaaaaaa of node n1 is being released until 2031-02-03T04:08:06Z; ")
	s.use("gpu-aaaaaaaa")
	_, _, err = s.run(t.Context(), t, "release", "n1", "0")
	require.ErrorContains(t, err, "GPU gpu-aaaaaaaa of node n1 is allocated to ResourceClaim team/c; ")
	_, _, err = s.run(t.Context(), t, "release", "n1", "0", "--for", "11m")
	require.EqualError(t, err, "--for: must be greater than 0 and less than or equal to 10m0s, got 11m0s")
}

func TestHeal_GPU_BeforeTheTimeOfTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, _, err := s.run(t.Context(), t, "heal", "n1", "bbbbbbbb")
	require.NoError(t, err)
	assert.Equal(t, "2031-02-03T04:05:06Z", s.annotations["heal."+driver+"/gpu-bbbbbbbb"])
}

func TestCommands_BadArguments_OneSentence(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for args, want := range map[string]string{
		"drain n1":                        "a node and one of its GPUs are required, as in: kubectl prism gpu drain NODE GPU|--all; kubectl prism gpu list prints the GPUs",
		"drain n1 0 --all":                "a GPU and --all are mutually exclusive",
		"drain n1 0 --force":              "--force: requires --evict",
		"drain n1 0 --timeout=-1s":        "--timeout: must be greater than or equal to 0, got -1s",
		"drain n1 7":                      `GPU "7" of node n1: unknown; GPUs of the node: gpu-aaaaaaaa (index 0, GPU-aaaaaaaa), gpu-bbbbbbbb (index 1, GPU-bbbbbbbb)`,
		"drain n2 0":                      "reading node n2: /api/v1/nodes/n2 not found",
		"list -o x":                       `--output: unsupported value "x"; supported values: table, wide, json, yaml`,
		"list n1 --driver-name gpu.x.org": "node n1 has no ResourceSlices of driver gpu.x.org, but of: gpu.example.com; set --driver-name if Prism has another name",
	} {
		_, _, err := s.run(t.Context(), t, strings.Fields(args)...)
		assert.EqualError(t, err, want, args)
	}
	assert.Zero(t, s.sent("PATCH"))
}
