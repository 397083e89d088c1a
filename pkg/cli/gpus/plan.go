package gpus

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// using returns the claims that a GPU, or one of all GPUs of its node, is allocated to.
func using(claims []resourceapi.ResourceClaim, driver string, gpu cluster.Place) (found []resourceapi.ResourceClaim) {
	for i := range claims {
		if slices.ContainsFunc(cluster.Allocated(&claims[i], driver), func(at cluster.Place) bool {
			return at == gpu || gpu.Name == maintenance.All && at.Node == gpu.Node
		}) {
			found = append(found, claims[i])
		}
	}
	return found
}

// claimNames names claims for a sentence, of many claims only the first.
func claimNames(claims []resourceapi.ResourceClaim) string {
	const shown = 5
	var names []string
	for i := range claims {
		if i == shown {
			names = append(names, fmt.Sprintf("%d more", len(claims)-shown))
			break
		}
		names = append(names, claims[i].Namespace+"/"+claims[i].Name)
	}
	if len(claims) == 1 {
		return "ResourceClaim " + names[0]
	}
	return "ResourceClaims " + strings.Join(names, ", ")
}

// consumer is an object that a claim is reserved for.
type consumer struct {
	namespace string
	resourceapi.ResourceClaimConsumerReference
}

// pod reports whether the consumer is a pod.
func (c consumer) pod() bool { return c.APIGroup == "" && c.Resource == "pods" }

func (c consumer) String() string {
	kind := "pod"
	if !c.pod() {
		kind = strings.TrimSuffix(c.Resource, "s")
	}
	return fmt.Sprintf("%s %s/%s", kind, c.namespace, c.Name)
}

// consumers returns the objects that claims are reserved for, each once, and the claims that are reserved for none.
func consumers(claims []resourceapi.ResourceClaim) (of []consumer, idle []resourceapi.ResourceClaim) {
	for i := range claims {
		if len(claims[i].Status.ReservedFor) == 0 {
			idle = append(idle, claims[i])
		}
		for _, reference := range claims[i].Status.ReservedFor {
			if c := (consumer{claims[i].Namespace, reference}); !slices.Contains(of, c) {
				of = append(of, c)
			}
		}
	}
	return of, idle
}

// The reasons to wait for a pod.
const (
	terminating = "it is terminating"
	deleted     = "it is deleted, and its claims are being released"
	finished    = "it has finished, and its claims are being released"
)

// decide returns why a pod is waited for without an eviction; "" for a pod that is to be evicted. nil is a pod that was deleted.
func decide(of consumer, pod *corev1.Pod, force bool) string {
	if pod == nil || pod.UID != of.UID {
		return deleted
	}
	controller := metav1.GetControllerOf(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		return terminating
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return finished
	case controller != nil && controller.Kind == "DaemonSet" && !force:
		return "DaemonSet " + controller.Name + " manages it; evict it with --force"
	case controller == nil && !force:
		return "it has no controller that creates it again; evict it with --force, or delete it"
	}
	return ""
}
