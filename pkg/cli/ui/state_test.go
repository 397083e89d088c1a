package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

const testDriver = "gpu.prism.dev"

func exactly(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

func TestClassOf_Request_ClassOfExactOrSubrequest(t *testing.T) {
	t.Parallel()
	claim := &clusterview.Claim{ResourceClaim: &resourceapi.ResourceClaim{}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{exactly("a", "whole", 1), {Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "big", DeviceClassName: "mig-3g"}, {Name: "small", DeviceClassName: "mig-1g"},
	}}}
	for request, want := range map[string]string{"a": "whole", "b/big": "mig-3g", "b/small": "mig-1g", "b/other": "", "c": ""} {
		assert.Equal(t, want, classOf(claim, request), request)
	}
}

// pending returns a pod that waits.
func pending(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name)}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Status.Phase = corev1.PodPending
	return pod
}

func TestStateOf_WaitingPods_TheirRequests(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	store.PutClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "whole"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}})
	requests := []resourceapi.DeviceRequest{exactly("a", "whole", 2), {Name: "b", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "big", DeviceClassName: "mig-3g", Count: 1}, {Name: "small", DeviceClassName: "mig-1g", Count: 2},
	}}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "shared"}}
	claim.Spec.Devices.Requests = requests
	store.PutClaim(claim)
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "template"}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "all", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "mps", AllocationMode: resourceapi.DeviceAllocationModeAll,
	}}}
	store.PutTemplate(types.NamespacedName{Namespace: "ml", Name: "template"}, template)

	put := func(pod *corev1.Pod, edit func(*corev1.Pod)) { edit(pod); store.PutPod(pod) }
	put(pending("a-claim"), func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}
	})
	put(pending("b-template"), func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("template")}}
	})
	put(pending("c-extended"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			"example.com/gpu": resource.MustParse("2"), "nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("4"),
		}
	})
	for name, edit := range map[string]func(*corev1.Pod){
		"d-runs":    func(p *corev1.Pod) { p.Spec.NodeName = "node-1" },
		"e-deleted": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
		"f-ended":   func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		put(pending(name), func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}
			edit(p)
		})
	}
	put(pending("g-no-gpu"), func(*corev1.Pod) {})
	store.SetScope(clusterview.Scope{AllPods: true})

	s := stateOf(store.Cluster(), About{Driver: testDriver})
	var names []string
	for _, pod := range s.Pods {
		names = append(names, pod.Name)
	}
	require.Equal(t, []string{"a-claim", "b-template", "c-extended"}, names)
	assert.Equal(t, []string{"2 × whole", "1 × mig-3g or 2 × mig-1g"}, s.Pods[0].Requests)
	assert.Equal(t, []string{"mig-1g", "mig-3g", "whole"}, s.Pods[0].Classes)
	assert.Equal(t, []string{"all × mps"}, s.Pods[1].Requests)
	assert.Equal(t, []string{"2 × example.com/gpu", "1 × nvidia.com/gpu"}, s.Pods[2].Requests)
}

func TestGPUOf_TaintsAndMaintenance_Shown(t *testing.T) {
	t.Parallel()
	node := &clusterview.Node{Name: "node-1", Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		maintenance.Key(maintenance.Maintain, testDriver, "gpu-1"): "fan", maintenance.Key(maintenance.Maintain, testDriver, maintenance.All): "move",
	}}}}
	gpu := &clusterview.GPU{
		Node: node, Name: "gpu-1", Devices: map[string]int{"gpu": 1, "mig": 3},
		Taints: []clusterview.Taint{{Key: testDriver + "/recovery-action", Value: "reset", Effect: "NoSchedule", Devices: 4}, {Key: "other/key", Effect: "None", Devices: 1}},
	}
	g := gpuOf(gpu, testDriver)
	assert.Equal(t, "fan", g.Maintenance)
	gpu.Name = "gpu-2"
	assert.Equal(t, "move", gpuOf(gpu, testDriver).Maintenance, "of all GPUs of the node")
	assert.Equal(t, []Taint{{Text: "recovery-action=reset:NoSchedule", Devices: 4, Of: 4}, {Text: "other/key:None", Devices: 1, Of: 4}}, g.Taints)
}

func TestNodesOf_InvalidPool_ProblemOfNode(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	node := "node-1"
	store.PutSlice(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: testDriver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: "node-1/gpu-1", Generation: 1, ResourceSliceCount: 2},
	}})
	store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-only"}})
	nodes := nodesOf(store.Cluster(), testDriver)
	require.Len(t, nodes, 1, "nodes without GPUs are left out")
	require.Len(t, nodes[0].Problems, 1)
	assert.Contains(t, nodes[0].Problems[0], "pool node-1/gpu-1 is incomplete: ")
	assert.NotNil(t, nodes[0].GPUs, "the page reads a list")
}
