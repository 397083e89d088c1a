package gpus_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/prism-gpu/prism/pkg/cli"
	"github.com/prism-gpu/prism/test/fakes/kubectlprism"
)

// apiServer answers reads by path. It is about a cluster with one machine, node-1.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	answers map[string]any
	// deny are paths that the user may not read.
	deny     map[string]bool
	requests []string
}

// list is a list of any kind.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []any           `json:"items"`
}

const resourceAPI = "/apis/resource.k8s.io/v1/"

func newAPIServer(t *testing.T, machine string) *apiServer {
	t.Helper()
	s := &apiServer{deny: map[string]bool{}, answers: map[string]any{
		"/version": map[string]string{"major": "1", "minor": "37"}, "/api/v1/nodes": items(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}},
		}),
		"/api/v1/pods": items(), "/api/v1/namespaces/team/events": items(),
		resourceAPI + "resourceclaims": items(), resourceAPI + "devicetaintrules": items(), resourceAPI + "resourceslices": items(slicesOf(t, machine)...),
		resourceAPI + "deviceclasses": items(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "gpu.prism.dev"`}}},
		}}),
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func items(all ...any) list {
	l := list{Items: []any{}}
	l.Items = append(l.Items, all...)
	return l
}

// slicesOf are the ResourceSlices that the plugin publishes for a machine.
func slicesOf(t *testing.T, machine string) (all []any) {
	t.Helper()
	file, err := os.Open("../../plugin/publish/testdata/" + machine + ".yaml")
	require.NoError(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		s := &resourceapi.ResourceSlice{}
		if err := decoder.Decode(s); errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if s.Kind == "ResourceSlice" {
			all = append(all, s)
		}
	}
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Date", serverTime.Format(http.TimeFormat))
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	found := s.answers[r.URL.Path]
	switch text, isText := found.(string); {
	case s.deny[r.URL.Path]:
		answer(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "forbidden"})
	case found == nil:
		answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: r.URL.Path + " not found"})
	case isText:
		_, _ = io.WriteString(w, text)
	default:
		answer(w, http.StatusOK, found)
	}
}

// run runs a command, and returns its output and exit status.
func (s *apiServer) run(t *testing.T, args string) (out, errOut string, status int) {
	t.Helper()
	out, warnings, err := kubectlprism.Run(t.Context(), t, s.URL, strings.Fields(args)...)
	var printed bytes.Buffer
	status = cli.Status(err, &printed)
	return out, warnings + printed.String(), status
}

// waits is a pod of namespace team with a claim for a GPU.
func waits(name string) (*corev1.Pod, *resourceapi.ResourceClaim) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-gpu"}, Spec: resourceapi.ResourceClaimSpec{
		Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}}}},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "u", CreationTimestamp: metav1.NewTime(serverTime.Add(-840e9))},
		Spec:       corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	return pod, claim
}

func TestExplainCommand_APIServer_ExitStatus(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	pod, claim := waits("train")
	s.answers["/api/v1/pods"], s.answers[resourceAPI+"resourceclaims"] = items(pod), items(claim)
	out, errOut, status := s.run(t, "explain pod train")
	assert.Equal(t, "Pod team/train, Pending for 14m: claim train-gpu fits now on 1 node\n"+
		"  request gpu: 1 × gpu.prism.dev\nNODES  CAUSE  DETAIL\n    1  Fits\n", out)
	assert.Empty(t, errOut)
	assert.Equal(t, 0, status)

	claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = "gpu.prism.test"
	out, errOut, status = s.run(t, "explain claim/train-gpu")
	assert.Contains(t, out, "ClassMissing")
	assert.Empty(t, errOut, "the explanation is enough")
	assert.Equal(t, 3, status)

	_, errOut, status = s.run(t, "explain pod nowhere")
	assert.Equal(t, "error: pod team/nowhere does not exist\n", errOut)
	assert.Equal(t, 1, status)
	for _, request := range s.requests {
		assert.True(t, strings.HasPrefix(request, "GET "), request)
	}
}

func TestMapCommand_MissingRights_OneLineEach(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	out, errOut, status := s.run(t, "map node-1")
	assert.Contains(t, out, "NVIDIA H100 80GB HBM3  driver 580.95.5\n0 ")
	assert.Empty(t, errOut)
	assert.Equal(t, 0, status)
	for _, path := range []string{resourceAPI + "resourceclaims", "/api/v1/pods", "/api/v1/nodes"} {
		s.deny[path] = true
	}
	s.answers[resourceAPI+"namespaces/team/resourceclaims"], s.answers["/api/v1/namespaces/team/pods"] = items(), items()
	out, errOut, status = s.run(t, "map")
	assert.Contains(t, out, "node-1  ")
	assert.Equal(t, 0, status)
	require.Equal(t, 2, strings.Count(errOut, "\n"), errOut)
	for _, text := range []string{"list nodes", "list resourceclaims.resource.k8s.io in all namespaces"} {
		assert.Contains(t, errOut, text)
	}
}

// TestViewCommands_ResourceSlicesNotReadable_Unknown: without the right, nothing can be said about GPUs or about why a pod waits.
func TestViewCommands_ResourceSlicesNotReadable_Unknown(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	pod, claim := waits("train")
	s.answers["/api/v1/pods"], s.answers[resourceAPI+"resourceclaims"] = items(pod), items(claim)
	s.answers["/api/v1/namespaces/team/pods"] = items(pod)
	s.deny[resourceAPI+"resourceslices"] = true
	const right = "Missing right: list resourceslices.resource.k8s.io; the chart's ClusterRole *-gpus-view contains it\n"
	for _, args := range []string{"explain pod train", "explain claim train-gpu", "explain -l !x", "map", "map -o html", "top nodes", "capacity"} {
		out, errOut, status := s.run(t, args)
		assert.Empty(t, out, args)
		assert.Equal(t, right+"error: the GPUs are unknown: you cannot list ResourceSlices\n", errOut, args)
		assert.Equal(t, 1, status, args)
	}
	s.deny[resourceAPI+"deviceclasses"] = true
	_, errOut, _ := s.run(t, "explain pod train")
	assert.Contains(t, errOut, "error: the GPUs are unknown: you cannot list ResourceSlices and DeviceClasses\n")
	_, errOut, _ = s.run(t, "top nodes")
	assert.Equal(t, right+"error: the GPUs are unknown: you cannot list ResourceSlices\n", errOut, "top needs no classes")
}

func TestTopCommand_ExporterOrPrometheus_SameGPUs(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	uuid := *s.answers[resourceAPI+"resourceslices"].(list).Items[0].(*resourceapi.ResourceSlice).Spec.Devices[0].Attributes["uuid"].StringValue
	s.answers["/api/v1/namespaces/prism-system/pods/exporter:9400/proxy/metrics"] = "# TYPE prism_gpu_utilization_ratio gauge\n" +
		`prism_gpu_utilization_ratio{gpu_uuid="` + uuid + `"} 0.42` + "\n"
	s.answers["/api/v1/pods"] = items(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prism-system", Name: "exporter"}, Spec: corev1.PodSpec{NodeName: "node-1", HostPID: true}})
	s.answers["/prometheus/api/v1/query"] = `{"status":"success","data":{"result":[{"metric":{"__name__":"prism_gpu_utilization_ratio","gpu_uuid":"` + uuid + `"},"value":[1,"0.42"]}]}}`
	for _, source := range []string{"", " --prometheus " + s.URL + "/prometheus"} {
		out, errOut, status := s.run(t, "top gpus"+source)
		assert.Contains(t, out, " 42%", source)
		assert.Empty(t, errOut)
		assert.Equal(t, 0, status)
	}
	_, errOut, status := s.run(t, "top nodes --prometheus "+s.URL)
	assert.Equal(t, "error: querying Prometheus "+s.URL+": the answer is not from Prometheus\n", errOut)
	assert.Equal(t, 1, status)
}

func TestViewCommands_BadArguments_OneSentence(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	const required = "a pod or claim is required, as in: kubectl prism explain pod NAME; or -l SELECTOR, or -f FILE"
	for args, want := range map[string]string{
		"explain":                  required,
		"explain pod":              required,
		"explain pod/":             required,
		"explain pod a b":          required,
		"explain node a":           `kind "node": supported kinds: pod, claim`,
		"explain pod a -l x=y":     "a name, -l and -f are mutually exclusive",
		"explain -f x -l x=y":      "a name, -l and -f are mutually exclusive",
		"explain -f /dev/null":     "/dev/null: found no object; supported kinds: Pod, Deployment, Job, StatefulSet, DaemonSet, ResourceClaim, ResourceClaimTemplate",
		"explain -f /nowhere":      "reading -f: open /nowhere: no such file or directory",
		"explain pod a -o name":    `--output: unsupported value "name"; supported values: wide, json, yaml`,
		"explain pod a -w -o json": "--watch: not supported with --output json",
		"map node-2":               "node node-2 does not exist; similar: node-1",
		"map -o x":                 `--output: unsupported value "x"; supported values: wide, json, yaml, html`,
		"top":                      "an argument is required: nodes, gpus, pods, namespaces",
		"top cpus":                 "an argument is required: nodes, gpus, pods, namespaces",
		"top pods --sort x":        `--sort: unsupported value "x"; supported values: name, utilization, memory, power`,
		"top nodes":                "no pods of prism-exporter found: set exporter.enabled in the chart, or --prometheus",
		"top nodes --prometheus x": `--prometheus: must be a URL or namespace/service:port, got "x"`,
	} {
		_, errOut, status := s.run(t, args)
		assert.Equal(t, "error: "+want+"\n", errOut, args)
		assert.Equal(t, 1, status, args)
	}
}
