package gpus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// plan returns the picture of the cluster with the objects of the file, and the pods to explain; without pods, the claims.
func (x *explaining) plan(ctx context.Context, c *clusterview.Cluster) (*clusterview.Cluster, []subject) {
	m := x.manifest
	planned := *c
	planned.Claims, planned.Templates = slices.Clone(c.Claims), maps.Clone(c.Templates)
	if planned.Templates == nil {
		planned.Templates = map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{}
	}
	maps.Copy(planned.Templates, m.templates)
	for _, object := range m.claims {
		putClaim(&planned, &clusterview.Claim{ResourceClaim: object.DeepCopy()})
	}
	var subjects []subject
	for i := range m.workloads {
		w := &m.workloads[i]
		s := subject{pod: x.plannedPod(ctx, &planned, w)}
		if w.replicas > 1 {
			s.note = fmt.Sprintf("This is about one of the %d pods of %s %s", w.replicas, w.kind, w.pod.Name)
		}
		subjects = append(subjects, s)
	}
	if len(m.workloads) > 0 {
		return &planned, subjects
	}
	for _, object := range m.claims {
		subjects = append(subjects, subject{claim: planned.FindClaim(object.Namespace, object.Name)})
	}
	for _, name := range slices.SortedFunc(maps.Keys(m.templates), compareNames) {
		claim := &clusterview.Claim{ResourceClaim: &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Spec:       m.templates[name].Spec.Spec,
		}}
		subjects = append(subjects, subject{claim: claim})
	}
	return &planned, subjects
}

// plannedPod returns a pod with the claims that it names, and reads its templates.
func (x *explaining) plannedPod(ctx context.Context, c *clusterview.Cluster, w *workload) *clusterview.Pod {
	pod := &clusterview.Pod{Pod: w.pod.DeepCopy()}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if name := entry.ResourceClaimTemplateName; name != nil {
			x.readTemplate(ctx, c, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		}
		if entry.ResourceClaimName == nil {
			continue
		}
		if claim := c.FindClaim(pod.Namespace, *entry.ResourceClaimName); claim != nil && !slices.Contains(pod.Claims, claim) {
			pod.Claims = append(pod.Claims, claim)
		}
	}
	return pod
}

// withTemplates returns a Solver that knows the templates of a pod whose claims do not exist yet: the picture has only some of them.
func (x *explaining) withTemplates(ctx context.Context, solver *explain.Solver, pod *clusterview.Pod) *explain.Solver {
	var unknown []types.NamespacedName
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		made := slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == entry.Name })
		if entry.ResourceClaimTemplateName == nil || made {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: *entry.ResourceClaimTemplateName}
		if _, read := solver.Cluster.Templates[name]; !read {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 || pod.Spec.NodeName != "" {
		return solver
	}
	// Others may read the picture at the same time.
	c := *solver.Cluster
	if c.Templates = maps.Clone(c.Templates); c.Templates == nil {
		c.Templates = map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{}
	}
	for _, name := range unknown {
		x.readTemplate(ctx, &c, name)
	}
	return explain.NewSolver(&c, solver.Features)
}

// readTemplate adds a template to the picture, unless it is there; nil stands for one that does not exist.
func (x *explaining) readTemplate(ctx context.Context, c *clusterview.Cluster, name types.NamespacedName) {
	if _, read := c.Templates[name]; read {
		return
	}
	template, err := x.client.ResourceV1().ResourceClaimTemplates(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.Templates[name] = nil
	case err != nil:
		err = cluster.Explain("reading ResourceClaimTemplate "+name.String(), "get on resourceclaimtemplates of resource.k8s.io in namespace "+name.Namespace, err)
		x.once(err.Error())
	default:
		c.Templates[name] = template
	}
}

// putClaim adds a claim to a picture, whose list of claims is its own, instead of a claim of the same name.
func putClaim(c *clusterview.Cluster, claim *clusterview.Claim) {
	at, found := slices.BinarySearchFunc(c.Claims, claim, func(a, b *clusterview.Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if found {
		c.Claims[at] = claim
		return
	}
	c.Claims = slices.Insert(c.Claims, at, claim)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
