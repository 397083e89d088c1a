package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// namespace is the namespace of pods and claims.
const namespace = metav1.NamespaceDefault

// writers is the number of concurrent requests.
const writers = 12

// inParallel calls do for 0 to n-1 and returns the first error.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for range writers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
					return
				}
			}
		})
	}
	group.Wait()
	return first
}

// fakeCluster is an API server with nodes that no kubelet runs.
type fakeCluster struct {
	client kubernetes.Interface
	layout *Layout
	node   *gpu.Node
	nodes  int
	// full are the allocation results of a full node, one element per claim.
	full []results
}

// nodeName returns the name of the ith fake node.
func nodeName(i int) string { return fmt.Sprintf("f%04d", i) }

// createNodes creates the DeviceClasses, the nodes and their ResourceSlices.
func (c *fakeCluster) createNodes(ctx context.Context) error {
	for i := range c.layout.Classes {
		_, err := c.client.ResourceV1().DeviceClasses().Create(ctx, &c.layout.Classes[i], metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating class %s: %w", c.layout.Classes[i].Name, err)
		}
	}
	return inParallel(c.nodes, func(i int) error {
		name := nodeName(i)
		if _, err := c.client.CoreV1().Nodes().Create(ctx, fakeNode(name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %s: %w", name, err)
		}
		// Admission taints every new node until a kubelet is ready.
		_, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("removing the taints of node %s: %w", name, err)
		}
		for _, slice := range objects(c.layout.Driver, name, c.layout.Pools(name, c.node)) {
			if _, err := c.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating ResourceSlice %s: %w", slice.Name, err)
			}
		}
		return nil
	})
}

func fakeNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Fake", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
}

// fill allocates all devices of a kind on that many nodes, spread evenly, to claims.
func (c *fakeCluster) fill(ctx context.Context, kind RequestKind, count int) error {
	if len(c.full) == 0 {
		n := newNode(c.layout, nodeName(0), c.node)
		all, err := n.fill(ctx, c.layout.Requests[kind], GPUs*smallestPerGPU)
		if err != nil {
			return err
		}
		for page := range slices.Chunk(all, resourceapi.AllocationResultsMaxSize) {
			c.full = append(c.full, page)
		}
	}
	return inParallel(count*len(c.full), func(k int) error {
		i := (k / len(c.full)) * c.nodes / count
		return c.allocated(ctx, fmt.Sprintf("full-%d", k), nodeName(i), c.layout.Requests[kind], c.full[k%len(c.full)])
	})
}

// allocated creates an allocated claim on a node; the results are translated from results of the first node.
func (c *fakeCluster) allocated(ctx context.Context, name, node string, request *resourceapi.ExactDeviceRequest, of results) error {
	claims := c.client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: request}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating claim %s: %w", name, err)
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, r := range of {
		r.Pool = node + strings.TrimPrefix(r.Pool, nodeName(0))
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, r)
	}
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("allocating claim %s: %w", name, err)
	}
	return nil
}

// createPods creates a ResourceClaimTemplate and pods with one claim each, named after the phase.
func (c *fakeCluster) createPods(ctx context.Context, phase string, kind RequestKind, count int) error {
	_, err := c.client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: phase},
		Spec: resourceapi.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{phaseLabel: phase}}, Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: c.layout.Requests[kind]}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating template %s: %w", phase, err)
	}
	mount := false
	return inParallel(count, func(i int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", phase, i), Labels: map[string]string{phaseLabel: phase}},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: &mount,
				ResourceClaims:               []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &phase}},
				Containers: []corev1.Container{{
					Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c"}}},
				}},
			},
		}
		if _, err := c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		return nil
	})
}

// clear deletes the pods of a phase and their claims, and waits until the claims are deleted and the devices are free again.
func (c *fakeCluster) clear(ctx context.Context, phase string) error {
	now, chosen := int64(0), metav1.ListOptions{LabelSelector: phaseLabel + "=" + phase}
	claims := c.client.ResourceV1().ResourceClaims(namespace)
	err := errors.Join(c.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, chosen),
		claims.DeleteCollection(ctx, metav1.DeleteOptions{}, chosen))
	if err != nil {
		return fmt.Errorf("deleting the pods of %s: %w", phase, err)
	}
	left := 0
	err = wait.PollUntilContextTimeout(ctx, clearInterval, clearLimit, true, func(ctx context.Context) (bool, error) {
		list, err := claims.List(ctx, chosen)
		if err != nil {
			return false, err
		}
		left = len(list.Items)
		return left == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the deletion of the claims of %s, %d are left: %w", phase, left, err)
	}
	return nil
}

const (
	clearInterval = 500 * time.Millisecond
	clearLimit    = 2 * time.Minute
)

// phaseLabel is the label of the pods of a phase and their claims.
const phaseLabel = "prism.test/phase"
