package view

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

// needTemplates records the templates of claims that a pod does not have yet.
func (r *reader) needTemplates(name types.NamespacedName, pod *corev1.Pod) {
	for i := range pod.Spec.ResourceClaims {
		of := &pod.Spec.ResourceClaims[i]
		made := slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == of.Name })
		if of.ResourceClaimTemplateName != nil && !made {
			r.unmade[name] = append(r.unmade[name], types.NamespacedName{Namespace: pod.Namespace, Name: *of.ResourceClaimTemplateName})
		}
	}
}

// templatesAtOnce limits the requests for templates: pods may name any number of them.
const templatesAtOnce = 20

// readTemplates reads the templates that pods name and that are not known yet, of many only some: first the templates that it did not request
// before, and of the user's namespace. It requests a template that does not exist again.
func (r *reader) readTemplates(ctx context.Context) error {
	r.mu.Lock()
	unknown := map[types.NamespacedName]bool{}
	for _, of := range r.unmade {
		for _, name := range of {
			if !r.templates[name] {
				unknown[name] = true
			}
		}
	}
	rank := func(name types.NamespacedName) int {
		if _, requested := r.templates[name]; requested {
			return 2
		}
		if name.Namespace != r.Namespace {
			return 1
		}
		return 0
	}
	names := slices.SortedFunc(maps.Keys(unknown), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.mu.Unlock()
	for _, name := range names[:min(len(names), templatesAtOnce)] {
		if err := r.readTemplate(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readTemplate(ctx context.Context, name types.NamespacedName) error {
	resource := "resourceclaimtemplates." + resourceapi.GroupName
	template, err := r.client.ResourceV1().ResourceClaimTemplates(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		r.lacks(Missing{"get", resource + " in namespace " + name.Namespace, roleAll})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.templates[name] = false
		return nil
	case apierrors.IsNotFound(err):
		template = nil
	case err != nil:
		return cluster.Explain("reading ResourceClaimTemplate "+name.String(), "get on "+resource, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.PutTemplate(name, template)
	r.templates[name] = template != nil
	return nil
}
