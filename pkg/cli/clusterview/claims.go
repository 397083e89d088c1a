package clusterview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// addClaims adds the claims and the pods, and connects them.
func (s *Store) addClaims(c *Cluster) {
	claims := make(map[types.NamespacedName]*Claim, len(s.claims))
	for name, object := range s.claims {
		claims[name] = &Claim{ResourceClaim: object}
		c.Claims = append(c.Claims, claims[name])
	}
	slices.SortFunc(c.Claims, func(a, b *Claim) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	pods := make(map[types.NamespacedName]*Pod, len(s.pods))
	for name, object := range s.pods {
		pods[name] = &Pod{Pod: object}
		c.Pods = append(c.Pods, pods[name])
	}
	slices.SortFunc(c.Pods, func(a, b *Pod) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	unread := map[unreadPod]*Pod{}
	for _, claim := range c.Claims {
		claim.addConsumers(pods, unread)
	}
	for _, pod := range c.Pods {
		pod.addClaims(claims)
	}
}

// unreadPod identifies a pod that was not read: its namespace and its UID.
type unreadPod struct {
	namespace string
	uid       types.UID
}

// addConsumers adds the pods for which the claim is reserved. Claims of one pod that was not read share it.
func (c *Claim) addConsumers(pods map[types.NamespacedName]*Pod, unread map[unreadPod]*Pod) {
	for _, consumer := range c.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" {
			continue
		}
		pod := pods[types.NamespacedName{Namespace: c.Namespace, Name: consumer.Name}]
		if pod == nil || pod.UID != consumer.UID {
			id := unreadPod{c.Namespace, consumer.UID}
			if unread[id] == nil {
				unread[id] = &Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: consumer.Name, UID: consumer.UID}}}
			}
			pod = unread[id]
			pod.Claims = append(pod.Claims, c)
		}
		c.Pods = append(c.Pods, pod)
	}
}

// addClaims connects the pod with the claims that it refers to, each once. A claim of the same name that was made for another pod is not
// the pod's.
func (p *Pod) addClaims(claims map[types.NamespacedName]*Claim) {
	for name, mustOwn := range resourceclaim.PodClaims(p.Pod) {
		claim := claims[types.NamespacedName{Namespace: p.Namespace, Name: name}]
		if claim == nil || slices.Contains(p.Claims, claim) || mustOwn && resourceclaim.IsForPod(p.Pod, claim.ResourceClaim, true) != nil {
			continue
		}
		p.Claims = append(p.Claims, claim)
		if !slices.Contains(claim.Pods, p) {
			claim.Pods = append(claim.Pods, p)
		}
	}
}

// counted reports whether the scheduler counts an allocated device.
func counted(r *resourceapi.DeviceRequestAllocationResult) bool {
	return r.AdminAccess == nil || !*r.AdminAccess
}
