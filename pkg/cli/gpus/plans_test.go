package gpus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// fragmented is a cluster of two nodes with a GPU each. Pod moves is on node-1, pod stays without controller on node-2, and pod waits requests
// a MIG device with all memory of a GPU.
func fragmented(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t, "mig-h100-80")
	slices := s.answers[resourceAPI+"resourceslices"].(list).Items
	for _, item := range slices {
		other := item.(*resourceapi.ResourceSlice).DeepCopy()
		name := "node-2"
		other.Name, other.Spec.NodeName = name+other.Name, &name
		other.Spec.Pool.Name = strings.Replace(other.Spec.Pool.Name, "node-1", name, 1)
		slices = append(slices, other)
	}
	s.answers[resourceAPI+"resourceslices"] = items(slices...)
	nodes := s.answers["/api/v1/nodes"].(list).Items
	second := nodes[0].(*corev1.Node).DeepCopy()
	second.Name = "node-2"
	s.answers["/api/v1/nodes"] = items(nodes[0], second)
	var classes []any
	for class, profile := range map[string]string{"mig-1g-10gb.gpu.prism.dev": "1g.10gb", "mig-7g-80gb.gpu.prism.dev": "7g.80gb"} {
		classes = append(classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].profile == "` + profile + `"`,
			}}},
		}})
	}
	s.answers[resourceAPI+"deviceclasses"] = items(classes...)
	moves, movesClaim := migPod("moves", "mig-1g-10gb.gpu.prism.dev", "node-1")
	stays, staysClaim := migPod("stays", "mig-1g-10gb.gpu.prism.dev", "node-2")
	stays.OwnerReferences = nil
	waits, waitsClaim := migPod("waits", "mig-7g-80gb.gpu.prism.dev", "")
	s.answers["/api/v1/pods"], s.answers[resourceAPI+"resourceclaims"] = items(moves, stays, waits), items(movesClaim, staysClaim, waitsClaim)
	s.answers["/apis/policy/v1/poddisruptionbudgets"] = items()
	s.answers[strings.TrimSuffix(resourceAPI, "/")] = metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "resource.k8s.io/v1",
		APIResources: []metav1.APIResource{{Name: "devicetaintrules", Kind: "DeviceTaintRule"}},
	}
	return s
}

// migPod is a pod of a ReplicaSet with a claim of a class; with a node, it has the device at memory slice 3.
func migPod(name, class, node string) (*corev1.Pod, *resourceapi.ResourceClaim) {
	pod, claim := waits(name)
	template := "gpu"
	pod.UID = types.UID("uid-" + name)
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name + "-7d9f", Controller: new(true)}}
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim.Name}}
	pod.Labels = map[string]string{"app": name}
	claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu"}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: new(true)}}
	claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = class
	if node != "" {
		pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: driver, Pool: node + "/gpu-bc8c6223", Device: "gpu-bc8c6223-mig-19-3"},
		}}}
	}
	return pod, claim
}

func TestDefragmentCommand_OnePodBlocks_PlanWithoutWrites(t *testing.T) {
	t.Parallel()
	s := fragmented(t)
	out, errOut, status := s.run(t, "defragment waits")
	assert.Empty(t, errOut)
	assert.Equal(t, 0, status)
	assert.Contains(t, out, "Pod team/waits gets 7g.80gb at memory slice 0 of GPU bc8c6223 on node node-1 if\n  1 pod moves:\n"+
		"POD         DEVICES       OWNER                  FITS ON\nteam/moves  1g.10gb at 3  ReplicaSet/moves-7d9f  node-2\n")
	assert.Contains(t, out, "/kubeconfig create -f - --raw /api/v1/namespaces/team/pods/moves/eviction <<'EOF'\n")
	for _, request := range s.requests {
		assert.True(t, strings.HasPrefix(request, "GET "), request)
	}
	program, errOut, status := s.run(t, "defragment pod/waits -o commands --token secret --as jane --as-group a")
	assert.Equal(t, 0, status)
	assert.Equal(t, "The commands leave out --token: add the flag, or use a kubeconfig\n", errOut)
	assert.NotContains(t, program, "secret")
	assert.Contains(t, program, " --as=jane --as-group=a create -f - <<EOF\n")
	assert.True(t, strings.HasPrefix(program, "#!/bin/sh\nset -e\ntrap "))
	out, _, status = s.run(t, "defragment waits -o json")
	assert.Equal(t, 0, status)
	var plan struct {
		explain.Plan
		Rules    []resourceapi.DeviceTaintRule `json:"deviceTaintRules"`
		Commands string                        `json:"commands"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	assert.Equal(t, "moves", plan.Moves[0].Pod)
	assert.Len(t, plan.Rules, len(plan.Tainted))
	assert.NotEmpty(t, plan.Commands)
}

func TestDefragmentCommand_NoPlan_OneSentence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *apiServer)
		args   string
		want   string
	}{
		"unknown pod": {func(*apiServer) {}, "defragment wait", "error: pod team/wait does not exist, or requests no device; similar: waits\n"},
		"no rules": {func(s *apiServer) { delete(s.answers, strings.TrimSuffix(resourceAPI, "/")) }, "defragment waits",
			"error: the API server has no DeviceTaintRules, without which the devices of evicted pods go to the pods that replace them; " +
				"Kubernetes 1.37 has them, 1.36 with the feature gate DRADeviceTaintRules\n"},
		"taints off": {func(*apiServer) {}, "defragment waits --feature-gates DRADeviceTaints=false",
			"error: the API server has no DeviceTaintRules, without which the devices of evicted pods go to the pods that replace them; " +
				"Kubernetes 1.37 has them, 1.36 with the feature gate DRADeviceTaintRules\n"},
		"few rights": {func(s *apiServer) { s.deny[resourceAPI+"devicetaintrules"] = true }, "defragment waits",
			"error: a plan requires to list nodes, DeviceTaintRules, and the pods and ResourceClaims of all namespaces: " +
				"Missing right: list devicetaintrules.resource.k8s.io; the chart's ClusterRole *-gpus-view contains it\n"},
		"budget": {func(s *apiServer) {
			s.answers["/apis/policy/v1/poddisruptionbudgets"] = items(&policyapi.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "all"}, Spec: policyapi.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			})
		}, "defragment waits",
			"error: no plan for pod team/waits: nearest is 7g.80gb at 0 on node node-1, but pod team/moves cannot move: " +
				"PodDisruptionBudget all has disruptionsAllowed: 0\n"},
		"budgets unread": {func(s *apiServer) { s.deny["/apis/policy/v1/poddisruptionbudgets"] = true }, "defragment waits",
			"listing PodDisruptionBudgets: the API server denied access: forbidden; an administrator can allow list on poddisruptionbudgets of policy in " +
				"all namespaces; the API server refuses evictions that they forbid\n"},
		"runs": {func(*apiServer) {}, "defragment stays", "Pod team/stays runs on node node-2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fragmented(t)
			test.change(s)
			_, errOut, status := s.run(t, test.args)
			assert.Equal(t, test.want, errOut)
			assert.Equal(t, strings.HasPrefix(test.want, "error"), status == 1)
		})
	}
}

func TestCapacityCommand_Classes_TableAndNodes(t *testing.T) {
	t.Parallel()
	s := fragmented(t)
	out, errOut, status := s.run(t, "capacity")
	assert.Empty(t, errOut)
	assert.Equal(t, 0, status)
	assert.Equal(t, "CLASS                      FIT  NODES  MOST\n"+
		"mig-1g-10gb.gpu.prism.dev   12      2     6\n"+
		"mig-7g-80gb.gpu.prism.dev    0      0     0\n", out)
	out, _, _ = s.run(t, "capacity mig-1g-10gb.gpu.prism.dev")
	assert.Equal(t, "NODE    FIT\nnode-1    6\nnode-2    6\n(all)    12\n", out)
	_, errOut, status = s.run(t, "capacity mig-1g.10gb.gpu.prism.dev")
	assert.Equal(t, "error: DeviceClass mig-1g.10gb.gpu.prism.dev does not exist; similar: mig-1g-10gb.gpu.prism.dev, mig-7g-80gb.gpu.prism.dev\n", errOut)
	assert.Equal(t, 1, status)
	out, _, _ = s.run(t, "capacity -o json")
	var free explain.Free
	require.NoError(t, json.Unmarshal([]byte(out), &free))
	assert.Equal(t, 12, free.Rooms[0].Total)
}
