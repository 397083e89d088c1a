package gpus

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// world is a cluster with the published GPUs of a machine, as node-1.
type world struct {
	store    *clusterview.Store
	objects  []runtime.Object
	out, err *bytes.Buffer
}

// newWorld has a machine of pkg/plugin/publish/testdata, and a DeviceClass for MIG devices and for whole GPUs.
func newWorld(t *testing.T, machine string) *world {
	t.Helper()
	w := &world{store: clusterview.NewStore()}
	w.store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true})
	w.store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	for class, kind := range map[string]string{"gpu.prism.dev": "gpu", "mig.gpu.prism.dev": "mig"} {
		expression := `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "` + kind + `"`
		w.store.PutClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
		}})
	}
	file, err := os.Open("../../plugin/publish/testdata/" + machine + ".yaml")
	require.NoError(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		list := &resourceapi.ResourceSlice{}
		if err := decoder.Decode(list); errors.Is(err, io.EOF) {
			return w
		}
		require.NoError(t, err)
		if list.Kind == "ResourceSlice" {
			w.store.PutSlice(list)
		}
	}
}

// claimSpec requests one device of a class.
func claimSpec(class string) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
	}}}}
}

// pod adds a pod with a claim; with devices, the pod runs.
func (w *world) pod(name, class string, devices ...resourceapi.DeviceRequestAllocationResult) *corev1.Pod {
	at := metav1.NewTime(time.Now().Add(-14 * time.Minute))
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name + "-gpu", CreationTimestamp: at}, Spec: claimSpec(class)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name), CreationTimestamp: at, Labels: map[string]string{"app": "train"}},
		Spec:       corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if len(devices) > 0 {
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: devices}}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
		pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
	}
	w.store.PutClaim(claim)
	w.store.PutPod(pod)
	w.objects = append(w.objects, pod)
	return pod
}

// fill has a pod on each GPU.
func (w *world) fill() {
	for i, g := range w.store.Cluster().GPUs(driverName) {
		w.pod("big-"+string(rune('0'+i)), "gpu.prism.dev", resourceapi.DeviceRequestAllocationResult{
			Request: "gpu", Driver: driverName, Pool: poolOf(g), Device: g.Name,
		})
	}
}

// poolOf is the pool of a whole GPU.
func poolOf(g *clusterview.GPU) string {
	for _, p := range g.Node.Pools {
		for _, list := range p.Slices() {
			for i := range list.Spec.Devices {
				if list.Spec.Devices[i].Name == g.Name {
					return p.Name
				}
			}
		}
	}
	return ""
}

// viewer returns the flags of a command, with output into the world.
func (w *world) viewer() (*viewer, *cluster.Client) {
	streams, _, out, err := genericiooptions.NewTestIOStreams()
	w.out, w.err = out, err
	client := &cluster.Client{Interface: fake.NewClientset(w.objects...), Driver: driverName, Namespace: "ml", Clock: &reports.Clock{}}
	return &viewer{Connection: cluster.Connection{IOStreams: streams, Driver: driverName}}, client
}

// explain runs kubectl prism explain, with a flag changed.
func (w *world) explain(t *testing.T, change func(*explaining)) error {
	t.Helper()
	v, client := w.viewer()
	x := &explaining{viewer: v, client: client, features: structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
	}}
	change(x)
	return x.show(t.Context(), w.store.Cluster(), []view.Missing{})
}

func podNamed(name string) func(*explaining) {
	return func(x *explaining) { x.kind, x.name = kindPod, name }
}

func TestExplain_PodThatFits_NoError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mig-h100-80")
	w.pod("train-0", "mig.gpu.prism.dev")
	require.NoError(t, w.explain(t, podNamed("train-0")))
	assert.Contains(t, w.out.String(), "Pod ml/train-0, Pending for 14m: ")
	assert.Contains(t, w.out.String(), "    1  Fits")
	assert.Empty(t, w.err.String())
}

func TestExplain_PodThatWaits_HoldersAndStatus3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mig-h100-80")
	w.fill()
	w.pod("train-0", "mig.gpu.prism.dev")
	require.ErrorIs(t, w.explain(t, podNamed("train-0")), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), "    1  InUse")
	assert.Contains(t, w.out.String(), "ml/big-0")
	require.ErrorIs(t, w.explain(t, func(x *explaining) { x.kind, x.name, x.format = kindClaim, "train-0-gpu", "json" }), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), `"fits": false`)
	require.ErrorIs(t, w.explain(t, func(x *explaining) { x.kind, x.name, x.format = kindPod, "train-0", "yaml" }), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), "- cause: InUse\n")
}

func TestExplain_Selector_EqualPodsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		w.pod(name, "gpu.prism.dev")
	}
	w.pod("b", "mig.gpu.prism.dev")
	w.pod("done", "gpu.prism.dev", resourceapi.DeviceRequestAllocationResult{Driver: driverName, Pool: "node-1", Device: "x"})
	selector := func(x *explaining) { x.selector = "app=train" }
	require.ErrorIs(t, w.explain(t, selector), ErrDoesNotFit, "b does not fit")
	assert.Contains(t, w.out.String(), "  and 2 equal pods: a-1, a-2\n")
	assert.Equal(t, 2, bytes.Count(w.out.Bytes(), []byte("NODES")))
	assert.Equal(t, "4 of 5 pods with labels app=train wait for devices\n", w.err.String())
	require.ErrorIs(t, w.explain(t, func(x *explaining) { x.selector, x.format = "app=train", "json" }), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), `"equal": [`)
}

func TestExplain_BadInput_OneSentence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	w.pod("train-0", "gpu.prism.dev")
	w.pod("runs", "gpu.prism.dev", resourceapi.DeviceRequestAllocationResult{Driver: driverName, Pool: "node-1", Device: "gpu-df884fd5"})
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "plain", Labels: map[string]string{"app": "web"}}}
	w.objects = append(w.objects, plain)
	claim := func(name string) func(*explaining) {
		return func(x *explaining) { x.kind, x.name = kindClaim, name }
	}
	for want, change := range map[string]func(*explaining){
		"pod ml/trian-0 does not exist; similar: train-0":                                 podNamed("trian-0"),
		"pod ml/zzzzzzzzzz does not exist":                                                podNamed("zzzzzzzzzz"),
		"Pod ml/runs runs on node node-1":                                                 podNamed("runs"),
		"Pod ml/plain has no claims, and requests no extended resources of DeviceClasses": podNamed("plain"),
		"claim ml/train-1-gpu does not exist; similar: train-0-gpu":                       claim("train-1-gpu"),
		"ResourceClaim ml/runs-gpu is allocated: it has gpu-df884fd5 of pool node-1":      claim("runs-gpu"),
		"namespace ml has no pods with labels app=other":                                  func(x *explaining) { x.selector = "app=other" },
	} {
		assert.EqualError(t, w.explain(t, change), want)
		assert.Empty(t, w.out.String())
	}
	assert.ErrorContains(t, w.explain(t, func(x *explaining) { x.selector = "a a" }), "--selector: ")
	assert.ErrorContains(t, w.explain(t, func(x *explaining) { x.selector = "app=web" }), "Pod ml/plain has no claims, ")
}

func TestExplain_Facts_LastEventsOfThePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	w.pod("train-0", "gpu.prism.dev")
	event := func(name, reason, message string, uid types.UID, age time.Duration) {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}, Reason: reason, Message: message}
		e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Name: "train-0", UID: uid}
		e.EventTime = metav1.NewMicroTime(time.Now().Add(-2 * age))
		e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(time.Now().Add(-age))}
		w.objects = append(w.objects, e)
	}
	event("a", "FailedScheduling", "old", "train-0", time.Hour)
	event("b", "FailedScheduling", "0/1 nodes are available", "train-0", 5*time.Minute)
	event("c", "FailedScheduling", "of another pod of that name", "before", time.Minute)
	require.NoError(t, w.explain(t, podNamed("train-0")))
	assert.Contains(t, w.out.String(), "said 5m")
	assert.Contains(t, w.out.String(), "0/1 nodes are available")
}

func TestExplain_File_AsIfCreatedNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mig-h100-80")
	w.objects = append(w.objects, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "in-cluster"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claimSpec("mig.gpu.prism.dev")},
	})
	file := func(text string) func(*explaining) {
		return func(x *explaining) {
			x.file = filepath.Join(t.TempDir(), "objects.yaml")
			require.NoError(t, os.WriteFile(x.file, []byte(text), 0o600))
			require.NoError(t, x.read())
		}
	}
	const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {}
  template:
    spec:
      containers: [{name: c, image: i}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: NAME}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: in-file}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.prism.dev}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: named}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: none.prism.dev}}]}}
`
	replaced := func(from, to string) string {
		return string(bytes.ReplaceAll([]byte(workload), []byte(from), []byte(to)))
	}
	require.NoError(t, w.explain(t, file(replaced("NAME", "in-file"))))
	assert.Contains(t, w.out.String(), "Pod ml/web: ")
	assert.Contains(t, w.out.String(), "  request gpu: 1 × gpu.prism.dev\n")
	assert.Contains(t, w.out.String(), "This is about one of the 3 pods of Deployment web\n")
	assert.Contains(t, w.err.String(), "Service requests no devices and is ignored\n")
	require.NoError(t, w.explain(t, file(replaced("NAME", "in-cluster"))))
	assert.Contains(t, w.out.String(), "  request gpu: 1 × mig.gpu.prism.dev\n")
	require.ErrorIs(t, w.explain(t, file(replaced("NAME", "nowhere"))), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), "ResourceClaimTemplate nowhere does not exist")
	require.ErrorIs(t, w.explain(t, file(replaced("resourceClaimTemplateName: NAME", "resourceClaimName: named"))), ErrDoesNotFit)
	assert.Contains(t, w.out.String(), "ClassMissing")

	_, claims, _ := bytes.Cut([]byte(workload), []byte("name: web}\n---\n"))
	require.ErrorIs(t, w.explain(t, file(string(claims))), ErrDoesNotFit, "named")
	assert.Contains(t, w.out.String(), "ResourceClaim ml/named: ")
	assert.Contains(t, w.out.String(), "ResourceClaim ml/in-file: it fits now on 1 node\n")
	w.fill()
	require.ErrorIs(t, w.explain(t, file(replaced("NAME", "in-file"))), ErrDoesNotFit)
	assert.NotContains(t, w.out.String(), "defragment", "no pod to plan for")
}

func TestMap_Cluster_NodesAndFormats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "mig-h100-80")
	w.fill()
	show := func(change func(*mapping)) error {
		v, client := w.viewer()
		m := &mapping{viewer: v, client: client}
		change(m)
		return m.show(t.Context(), w.store.Cluster(), nil)
	}
	require.NoError(t, show(func(*mapping) {}))
	assert.Contains(t, w.out.String(), "[########]  whole ml/big-0\n")
	require.NoError(t, show(func(m *mapping) { m.node, m.format = "node-1", "json" }))
	assert.Contains(t, w.out.String(), `"bar": "[########]"`)
	assert.EqualError(t, show(func(m *mapping) { m.node = "node-2" }), "node node-2 does not exist; similar: node-1")
	assert.EqualError(t, show(func(m *mapping) { m.client.Driver = "gpu.x.org" }), "no node has ResourceSlices of driver gpu.x.org: the kubelet plugin "+
		"runs on no node with GPUs; kubectl prism validate checks nodes")
	w.objects = append(w.objects, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{Driver: "gpu.example.com"}})
	assert.EqualError(t, show(func(m *mapping) { m.client.Driver = "gpu.x.org" }), "no node has ResourceSlices of driver gpu.x.org, but of: gpu.example.com; "+
		"set --driver-name if Prism has another name")
}

// TestMap_Watch_BlocksOffTerminal: the second picture follows after an empty line.
func TestMap_Watch_BlocksOffTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	v, client := w.viewer()
	m := &mapping{viewer: v, client: client}
	m.watch = true
	missing := []view.Missing{{Verb: "list", Resource: "pods"}}
	require.NoError(t, m.show(t.Context(), w.store.Cluster(), missing))
	first := w.out.String()
	require.NoError(t, m.show(t.Context(), w.store.Cluster(), missing))
	assert.Equal(t, first+"\n"+first, w.out.String())
	assert.Equal(t, 1, bytes.Count(w.err.Bytes(), []byte("\n")), "a missing right is reported once")
}

// TestMap_ObjectsChangedWhileRead_AgeShown: the picture is as old as the beginning of the first LIST.
func TestMap_ObjectsChangedWhileRead_AgeShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	w.store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true, Changed: true, Read: time.Now().Add(-90 * time.Second)})
	v, client := w.viewer()
	require.NoError(t, (&mapping{viewer: v, client: client}).show(t.Context(), w.store.Cluster(), nil))
	assert.Equal(t, "Objects changed while they were read: the picture is from 90s ago\n", w.err.String())
}

// TestExplain_WatchedPodRuns_Ends: once a pod was explained, that it runs is the end, not an error.
func TestExplain_WatchedPodRuns_Ends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100-80")
	p := w.pod("train-0", "gpu.prism.dev")
	v, client := w.viewer()
	x := &explaining{viewer: v, client: client, kind: kindPod, name: "train-0"}
	x.watch = true
	require.NoError(t, x.show(t.Context(), w.store.Cluster(), nil))
	p = p.DeepCopy()
	p.Spec.NodeName, p.Status.Phase = "node-1", corev1.PodRunning
	w.store.PutPod(p)
	require.ErrorIs(t, x.show(t.Context(), w.store.Cluster(), nil), errDone)
	assert.Contains(t, w.out.String(), "\n\nPod ml/train-0 runs on node node-1\n")
}
