package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// Options are the facts and limits of an explanation besides the picture of the cluster.
type Options struct {
	// Driver is the name of Prism's driver, whose taints say what to repair.
	Driver string
	Facts  Facts
	// PerNode limits the search on a node; nil does not limit it.
	PerNode func(context.Context) (context.Context, context.CancelFunc)
	// Total limits the search on all nodes together, and for changes: an expensive claim would take PerNode on each node. nil does not limit it.
	Total func(context.Context) (context.Context, context.CancelFunc)
	// Now is the time in seconds since 1970.
	Now int64
}

// Facts are what the Events of a pod say. Empty texts are unknown.
type Facts struct {
	// ClaimCreation is the last Event FailedResourceClaimCreation.
	ClaimCreation string
	// Scheduler is the last Event FailedScheduling, SchedulerAge its age.
	Scheduler    string
	SchedulerAge time.Duration
}

// Pod explains why a pod waits, or on which nodes it fits. A pod of a file that is not in the cluster has no UID. The error is a *Refused if the pod
// runs, has ended, or needs no devices; other errors mean that the context has ended.
func Pod(ctx context.Context, s *Solver, pod *clusterview.Pod, o Options) (*Explanation, error) {
	pod = withRequests(pod)
	r := newRun(s, o)
	r.pod = pod
	e := &Explanation{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	e.Notes = r.podNotes()
	state, ready, err := started(pod)
	if err != nil {
		return nil, err
	}
	if state != "" {
		e.Fits, e.Sentence = ready, r.subject(e)+": "+state
		return e, nil
	}
	problem, claims := r.before(ctx, pod)
	x := newExtended(s.Cluster, pod)
	if claims.made {
		x.classes = nil
	}
	switch without := x.withoutClass(s.Cluster); {
	case problem != "":
		e.Sentence = r.subject(e) + ": " + problem
		return e, nil
	case len(without) > 0 && (strings.HasPrefix(string(without[0]), "nvidia.com/") || len(pod.Spec.ResourceClaims) > 0):
		e.Sentence = r.subject(e) + ": " + withoutClass(without[0])
		return e, nil
	case len(pod.Spec.ResourceClaims) == 0 && len(x.classes) == 0 && !claims.made:
		return nil, &Refused{fmt.Sprintf("Pod %s/%s has no claims, and requests no extended resources of DeviceClasses", pod.Namespace, pod.Name)}
	}
	for _, claim := range pod.Claims {
		r.own[claim] = true
	}
	r.allocated, r.labels = claims.allocated, x.labels()
	e.Notes = append(e.Notes, x.notes(s.Cluster)...)
	return e, r.explain(ctx, e, r.places(pod, claims, x))
}

// Claim explains why a claim cannot be allocated, or on which nodes it fits. The error is a *Refused if it is allocated.
func Claim(ctx context.Context, s *Solver, claim *clusterview.Claim, o Options) (*Explanation, error) {
	r := newRun(s, o)
	e := &Explanation{Kind: "ResourceClaim", Namespace: claim.Namespace, Name: claim.Name}
	if claim.Status.Allocation != nil {
		return nil, &Refused{fmt.Sprintf("ResourceClaim %s/%s is allocated: it has %s", claim.Namespace, claim.Name, allocatedDevices(claim))}
	}
	e.Notes = r.scopeNotes()
	pending := []*resourceapi.ResourceClaim{defaulted(claim.ResourceClaim)}
	if problem := r.unsupported(ctx, pending); problem != "" {
		e.Sentence = r.subject(e) + ": " + problem
		return e, nil
	}
	r.own[claim] = true
	var places []place
	a := r.asked(pending)
	for _, node := range s.Cluster.Nodes {
		places = append(places, place{node: node, asked: a})
	}
	return e, r.explain(ctx, e, places)
}

func newRun(s *Solver, o Options) *run {
	return &run{
		Solver: s, matcher: newMatcher(s.cel), options: o, own: map[*clusterview.Claim]bool{},
		pools: map[*wish]map[string]*outcome{}, nodes: map[*asked]map[string]*outcome{},
		readings: map[*wish]map[string]*reading{},
	}
}

func allocatedDevices(claim *clusterview.Claim) string {
	var names []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		names = append(names, result.Device+" of pool "+result.Pool)
	}
	if len(names) == 0 {
		return "no devices"
	}
	return list(names, shown)
}

func withoutClass(name corev1.ResourceName) string {
	return fmt.Sprintf("no node has the resource %s, and no DeviceClass has it as extendedResourceName: it is a resource of a device plugin, "+
		"or of the chart value deviceClasses.gpu.extendedResourceName", name)
}

// withRequests returns a pod whose containers request the extended resources that they limit, as the API server sets it.
func withRequests(pod *clusterview.Pod) *clusterview.Pod {
	missing := func(c corev1.Container) bool {
		for name := range c.Resources.Limits {
			if _, found := c.Resources.Requests[name]; !found {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(pod.Spec.Containers, missing) && !slices.ContainsFunc(pod.Spec.InitContainers, missing) {
		return pod
	}
	filled := &clusterview.Pod{Pod: pod.DeepCopy(), Claims: pod.Claims}
	for _, containers := range [][]corev1.Container{filled.Spec.Containers, filled.Spec.InitContainers} {
		for i := range containers {
			resources := &containers[i].Resources
			if resources.Requests == nil {
				resources.Requests = corev1.ResourceList{}
			}
			for name, amount := range resources.Limits {
				if _, found := resources.Requests[name]; !found {
					resources.Requests[name] = amount
				}
			}
		}
	}
	return filled
}

// podNotes are the notes that do not depend on devices.
func (r *run) podNotes() []string {
	notes := r.scopeNotes()
	if name := r.pod.Spec.SchedulerName; name != "" && name != corev1.DefaultSchedulerName {
		notes = append(notes, "The pod's scheduler is "+name+"; this is what the allocator of kube-scheduler decides")
	}
	if r.pod.Spec.SchedulingGroup != nil {
		notes = append(notes, "The pod is one of a group that is scheduled together; it is explained alone")
	}
	return notes
}

// hiddenNote says that claims were not read.
const hiddenNote = "You cannot list the claims of other namespaces: the devices that they hold count as free"

// scopeNotes say what was not read.
func (r *run) scopeNotes() []string {
	var notes []string
	scope := r.Cluster.Scope
	if scope.Namespace != "" {
		notes = append(notes, hiddenNote)
	}
	if !scope.TaintRules {
		notes = append(notes, "You cannot list DeviceTaintRules: their taints are not considered")
	}
	if !scope.Nodes && r.pod != nil {
		notes = append(notes, "You cannot list Nodes: their taints, labels and resources are not considered")
	}
	return notes
}
