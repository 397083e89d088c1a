package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

var one = *resource.NewQuantity(1, resource.DecimalSI)

// extended are the extended resources that a pod requests and DeviceClasses provide.
type extended struct {
	pod     *clusterview.Pod
	classes map[corev1.ResourceName]*resourceapi.DeviceClass
}

// newExtended finds the classes of the pod's extended resources. Of two classes with the same name the newer counts.
func newExtended(c *clusterview.Cluster, pod *clusterview.Pod) *extended {
	x := &extended{pod: pod, classes: map[corev1.ResourceName]*resourceapi.DeviceClass{}}
	for name, amount := range resourcehelper.PodRequests(pod.Pod, resourcehelper.PodResourcesOptions{}) {
		if amount.IsZero() || !isExtended(name) {
			continue
		}
		if class := classFor(c, name); class != nil {
			x.classes[name] = class
		}
	}
	return x
}

// isExtended reports whether a name has a domain other than Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix) {
		return true
	}
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

func classFor(c *clusterview.Cluster, name corev1.ResourceName) *resourceapi.DeviceClass {
	if implicit, found := strings.CutPrefix(string(name), resourceapi.ResourceDeviceClassPrefix); found {
		return c.Classes[implicit]
	}
	var newest *resourceapi.DeviceClass
	for _, class := range c.Classes {
		if class.Spec.ExtendedResourceName == nil || *class.Spec.ExtendedResourceName != string(name) {
			continue
		}
		if newest == nil || cmp.Or(newest.CreationTimestamp.Compare(class.CreationTimestamp.Time), cmp.Compare(class.Name, newest.Name)) < 0 {
			newest = class
		}
	}
	return newest
}

// isMade reports whether a claim is not in the cluster, but made for extended resources.
func isMade(claim *resourceapi.ResourceClaim) bool {
	return claim.UID == "" && claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true"
}

// labels name the requests by container and resource.
func (x *extended) labels() map[string]string {
	labels := map[string]string{}
	for i, c := range slices.Concat(x.pod.Spec.InitContainers, x.pod.Spec.Containers) {
		for name := range x.classes {
			labels[x.request(i, &c, name, 1).Name] = string(name) + " of container " + c.Name
		}
	}
	return labels
}

// names lists the resources that a node does not have itself, from a device plugin.
func (x *extended) names(node *clusterview.Node) (names []corev1.ResourceName) {
	for name := range x.classes {
		if node.Object != nil {
			if has := node.Object.Status.Allocatable[name]; !has.IsZero() {
				continue
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// claim is the claim that the scheduler would make for the resources; nil for none.
func (x *extended) claim(names []corev1.ResourceName) *resourceapi.ResourceClaim {
	var requests []resourceapi.DeviceRequest
	for _, name := range names {
		requests = append(requests, x.requests(name)...)
	}
	if len(requests) == 0 {
		return nil
	}
	slices.SortFunc(requests, func(a, b resourceapi.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.pod.Namespace, Name: x.pod.Name + "-extended-resources",
			Annotations: map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"},
		},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// requests are the requests for a resource: one for each container that runs with the others, and the largest of the init containers that
// run alone, as far as the devices of the later containers do not suffice for them.
func (x *extended) requests(name corev1.ResourceName) []resourceapi.DeviceRequest {
	containers := slices.Concat(x.pod.Spec.InitContainers, x.pod.Spec.Containers)
	inits := len(x.pod.Spec.InitContainers)
	counts := make([]int64, len(containers))
	var requests []resourceapi.DeviceRequest
	for i := range containers {
		if i >= inits || restarts(&containers[i]) {
			counts[i] = amountOf(&containers[i], name)
			if counts[i] > 0 {
				requests = append(requests, x.request(i, &containers[i], name, counts[i]))
			}
		}
	}
	var largest *resourceapi.DeviceRequest
	for i := range inits {
		if restarts(&containers[i]) {
			continue
		}
		missing := amountOf(&containers[i], name)
		for _, later := range counts[i:] {
			missing -= later
		}
		if missing > 0 && (largest == nil || largest.Exactly.Count < missing) {
			r := x.request(i, &containers[i], name, missing)
			largest = &r
		}
	}
	if largest != nil {
		requests = append(requests, *largest)
	}
	return requests
}

func restarts(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func amountOf(c *corev1.Container, name corev1.ResourceName) int64 {
	amount := c.Resources.Requests[name]
	return amount.Value()
}

// request is named after the places of the container and of the resource among the container's.
func (x *extended) request(container int, c *corev1.Container, name corev1.ResourceName, count int64) resourceapi.DeviceRequest {
	var names []string
	for other := range c.Resources.Requests {
		names = append(names, string(other))
	}
	slices.Sort(names)
	return resourceapi.DeviceRequest{
		Name: fmt.Sprintf("container-%d-request-%d", container, slices.Index(names, string(name))),
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: x.classes[name].Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
		},
	}
}

// withoutClass lists the resources of GPUs that neither a DeviceClass nor a node provides.
func (x *extended) withoutClass(c *clusterview.Cluster) (names []corev1.ResourceName) {
	for name, amount := range resourcehelper.PodRequests(x.pod.Pod, resourcehelper.PodResourcesOptions{}) {
		if amount.IsZero() || !isExtended(name) || x.classes[name] != nil {
			continue
		}
		if !slices.ContainsFunc(c.Nodes, func(n *clusterview.Node) bool {
			if n.Object == nil {
				return false
			}
			has := n.Object.Status.Allocatable[name]
			return !has.IsZero()
		}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// notes say which nodes have the resources from a device plugin, whose devices are not counted without all pods.
func (x *extended) notes(c *clusterview.Cluster) []string {
	if c.Scope.AllPods || len(x.classes) == 0 {
		return nil
	}
	var nodes []string
	for _, node := range c.Nodes {
		if len(x.names(node)) < len(x.classes) {
			nodes = append(nodes, node.Name)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return []string{"A device plugin has the resources of " + list(nodes, shown) + "; its devices count as free"}
}
