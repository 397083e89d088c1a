package check

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	profiles "github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

// Facts are the objects that the user can read. Objects that could not be read are replaced by the reason, as text.
type Facts struct {
	// Driver is the name of the DRA driver.
	Driver string
	Pod    *corev1.Pod
	// Claims and Classes are found by name. Unreadable maps "claim/<name>" or "class/<name>" to the reason why it is missing.
	Claims     map[string]*resourceapi.ResourceClaim
	Classes    map[string]*resourceapi.DeviceClass
	Unreadable map[string]string
	// Rules are the cluster's policy and defaults; nil: not visible. NoProfiler is set if there are no rules because the cluster does not
	// run the profiler.
	Rules      *rules.Rules
	NoProfiler bool
	// NamespaceLabels reads the labels of the pod's namespace.
	NamespaceLabels func() (map[string]string, error)
	// Reports are the reports of the pod; nil: not visible.
	Reports *profiles.ReportList
}

// use is a claim, or one request of it, in a container.
type use struct{ claim, object, request string }

// Pod explains for each container of a pod whether it is profiled.
func Pod(f *Facts) *Result {
	r := &Result{Namespace: f.Pod.Namespace, Pod: f.Pod.Name, Node: f.Pod.Spec.NodeName}
	for _, containers := range [][]corev1.Container{f.Pod.Spec.InitContainers, f.Pod.Spec.Containers} {
		for i := range containers {
			r.Containers = append(r.Containers, f.container(&containers[i]))
		}
	}
	used := slices.ContainsFunc(r.Containers, func(c Container) bool { return len(c.Claims) > 0 })
	if used && f.Rules == nil && !f.NoProfiler {
		r.Notes = append(r.Notes, "policy and defaults of the cluster are not visible to you; they apply when a claim is prepared, and are in "+
			"the status of the claim afterwards")
	}
	return r
}

// container returns the verdict over all claims of a container: one profiled claim is sufficient.
func (f *Facts) container(of *corev1.Container) Container {
	c := Container{Name: of.Name, Reports: f.count(of.Name)}
	uses := uses(f.Pod, of)
	if len(uses) == 0 {
		c.Verdict = Verdict{No, "the container uses no claim, and only containers with a claim of driver " + f.Driver + " are profiled",
			"name a claim with a ProfilerConfig in resources.claims of the container"}
		return c
	}
	profiled := 0
	for _, u := range uses {
		claim := f.claim(u, of)
		if claim.verdict.Profiled != No && claim.Config != nil {
			profiled++
		}
		if c.Profiled == "" || rank(claim.verdict.Profiled) > rank(c.Profiled) {
			c.Verdict = claim.verdict
		}
		c.Claims = append(c.Claims, claim)
	}
	if profiled > 1 {
		c.Because += fmt.Sprintf(" (%d claims of the container request a profile: one of them applies, and all report SeveralProfiles)", profiled)
	}
	return c
}

func rank(a Answer) int { return slices.Index([]Answer{No, Depends, Yes}, a) }

func (f *Facts) count(container string) map[string]int {
	if f.Reports == nil {
		return nil
	}
	states := map[string]int{}
	for i := range f.Reports.Items {
		if r := &f.Reports.Items[i]; r.Spec.Container == container {
			states[r.Status.State]++
		}
	}
	return states
}

// UsesClaim reports whether a container of a pod uses the ResourceClaim of that name.
func UsesClaim(pod *corev1.Pod, container, claim string) bool {
	return claim != "" && slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return c.Name == container && slices.ContainsFunc(uses(pod, &c), func(u use) bool { return u.object == claim })
	})
}

// uses returns the claims of a container, including the claims that Kubernetes created for its extended resources.
func uses(pod *corev1.Pod, of *corev1.Container) []use {
	var uses []use
	for _, claim := range of.Resources.Claims {
		uses = append(uses, use{claim.Name, ObjectName(pod, claim.Name), claim.Request})
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, mapping := range extended.RequestMappings {
			if mapping.ContainerName == of.Name {
				uses = append(uses, use{mapping.ResourceName, extended.ResourceClaimName, mapping.RequestName})
			}
		}
	}
	return uses
}

// ObjectName returns the name of the ResourceClaim of a claim of a pod, or an empty string if it does not exist yet.
func ObjectName(pod *corev1.Pod, claim string) string {
	i := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == claim })
	if i < 0 {
		return ""
	}
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
	if err != nil || name == nil {
		return ""
	}
	return *name
}
