package gpus

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// subject is a pod or a claim to explain.
type subject struct {
	pod   *clusterview.Pod
	claim *clusterview.Claim
	// equal are the names of further pods with the same claims.
	equal []string
	note  string
}

func (s *subject) String() string {
	if s.claim != nil {
		return "claim " + s.claim.Namespace + "/" + s.claim.Name
	}
	return "pod " + s.pod.Namespace + "/" + s.pod.Name
}

// subjects returns the objects to explain. A file replaces the picture of the cluster by one with its objects.
func (x *explaining) subjects(ctx context.Context, c **clusterview.Cluster) ([]subject, error) {
	switch {
	case x.manifest != nil:
		planned, subjects := x.plan(ctx, *c)
		*c = planned
		return subjects, nil
	case x.selector != "":
		return x.selected(ctx, *c)
	case x.kind == kindClaim:
		return x.oneClaim(*c)
	}
	return x.onePod(ctx, *c)
}

// onePod returns the pod of the arguments.
func (x *explaining) onePod(ctx context.Context, c *clusterview.Cluster) ([]subject, error) {
	namespace := x.client.Namespace
	pod := c.FindPod(namespace, x.name)
	if pod == nil {
		object, err := x.client.CoreV1().Pods(namespace).Get(ctx, x.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			var names []string
			for _, other := range c.Pods {
				if other.Namespace == namespace {
					names = append(names, other.Name)
				}
			}
			return nil, fmt.Errorf("pod %s/%s does not exist%s", namespace, x.name, similar(x.name, names))
		case err != nil:
			return nil, cluster.Explain("reading pod "+namespace+"/"+x.name, "get on pods in namespace "+namespace, err)
		}
		pod = &clusterview.Pod{Pod: object}
	}
	return []subject{{pod: pod}}, nil
}

// oneClaim returns the claim of the arguments.
func (x *explaining) oneClaim(c *clusterview.Cluster) ([]subject, error) {
	namespace := x.client.Namespace
	claim := c.FindClaim(namespace, x.name)
	if claim == nil {
		var names []string
		for _, other := range c.Claims {
			if other.Namespace == namespace {
				names = append(names, other.Name)
			}
		}
		return nil, fmt.Errorf("claim %s/%s does not exist%s", namespace, x.name, similar(x.name, names))
	}
	return []subject{{claim: claim}}, nil
}

// selected returns the waiting pods with the labels of -l; of equal pods the first.
func (x *explaining) selected(ctx context.Context, c *clusterview.Cluster) ([]subject, error) {
	if _, err := labels.Parse(x.selector); err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	namespace := x.client.Namespace
	list, err := x.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: x.selector})
	if err != nil {
		return nil, cluster.Explain("listing pods of namespace "+namespace, "list on pods in namespace "+namespace, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no pods with labels %s", namespace, x.selector)
	}
	var subjects []subject
	first := map[string]int{}
	for i := range list.Items {
		pod := c.FindPod(namespace, list.Items[i].Name)
		if pod == nil {
			pod = &clusterview.Pod{Pod: &list.Items[i]}
		}
		key := podKey(pod)
		if at, found := first[key]; found {
			subjects[at].equal = append(subjects[at].equal, pod.Name)
			continue
		}
		first[key] = len(subjects)
		subjects = append(subjects, subject{pod: pod})
	}
	return subjects, nil
}

// podKey is equal for pods that the scheduler places alike: the names in their specs do not count.
func podKey(pod *clusterview.Pod) string {
	spec := pod.Spec.DeepCopy()
	spec.Hostname, spec.Volumes = "", nil
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i] = corev1.Container{Resources: containers[i].Resources}
		}
	}
	spec.ResourceClaims = nil
	var claims []any
	for _, claim := range pod.Claims {
		if claim.Status.Allocation != nil || len(claim.Pods) > 1 {
			claims = append(claims, claim.Name)
		}
		claims = append(claims, claim.Spec)
	}
	key, err := json.Marshal([]any{spec, claims, len(pod.Spec.ResourceClaims), pod.Status.Phase, pod.DeletionTimestamp != nil})
	if err != nil {
		return pod.Name
	}
	return string(key)
}
