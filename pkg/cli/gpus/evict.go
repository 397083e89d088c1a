package gpus

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyapi "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
)

// evictInterval is the interval between tries to evict a pod, as of kubectl drain.
const evictInterval = 5 * time.Second

// eviction evicts the pods with claims on a GPU, or on all GPUs of a node.
type eviction struct {
	client kubernetes.Interface
	driver string
	gpu    cluster.Place
	force  bool
	print  func(format string, values ...any)
	// printed are the last lines about consumers and claims.
	printed map[string]string
}

// claims returns the claims that the GPU is allocated to.
func (e *eviction) claims(ctx context.Context) ([]resourceapi.ResourceClaim, error) {
	all, err := cluster.Claims(ctx, e.client, e.driver)
	return using(all, e.driver, e.gpu), err
}

// preview prints what run would do.
func (e *eviction) preview(ctx context.Context) error {
	claims, err := e.claims(ctx)
	if err != nil {
		return err
	}
	of, idle := consumers(claims)
	for _, c := range of {
		why, err := e.inspect(ctx, c)
		switch {
		case err != nil:
			return err
		case why == "":
			e.print("%s would be evicted (dry run)", c)
		default:
			e.print("%s would be waited for: %s (dry run)", c, why)
		}
	}
	for i := range idle {
		e.print("ResourceClaim %s/%s would be waited for: %s (dry run)", idle[i].Namespace, idle[i].Name, reservedForNone)
	}
	return nil
}

// reservedForNone is why a claim without consumer is waited for.
const reservedForNone = "it is reserved for no pod; it is released soon, or delete it"

// run evicts the pods, and returns when no claim has the GPU. All claims are listed at the beginning and at the end only.
func (e *eviction) run(ctx context.Context) error {
	e.printed = map[string]string{}
	for {
		claims, err := e.claims(ctx)
		if err != nil || len(claims) == 0 {
			return err
		}
		for len(claims) > 0 {
			if err := e.round(ctx, claims); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(evictInterval):
			}
			if claims, err = e.refresh(ctx, claims); err != nil {
				return err
			}
		}
	}
}

// refresh reads the claims again, and returns those that still have the GPU.
func (e *eviction) refresh(ctx context.Context, claims []resourceapi.ResourceClaim) (left []resourceapi.ResourceClaim, err error) {
	for i := range claims {
		claim, err := e.client.ResourceV1().ResourceClaims(claims[i].Namespace).Get(ctx, claims[i].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, cluster.Explain("reading ResourceClaim "+claims[i].Namespace+"/"+claims[i].Name, "get on resourceclaims of resource.k8s.io", err)
		}
		left = append(left, *claim)
	}
	return using(left, e.driver, e.gpu), nil
}

// round tries to evict each pod once, and prints why others are waited for.
func (e *eviction) round(ctx context.Context, claims []resourceapi.ResourceClaim) error {
	of, idle := consumers(claims)
	for _, c := range of {
		why, err := e.inspect(ctx, c)
		if err == nil && why == "" {
			why, err = e.evict(ctx, c)
		}
		if err != nil {
			return err
		}
		if why != "" {
			e.say(c.String(), why)
		}
	}
	for i := range idle {
		e.say("ResourceClaim "+idle[i].Namespace+"/"+idle[i].Name, reservedForNone)
	}
	return nil
}

// say prints why something is waited for, if that changed.
func (e *eviction) say(subject, why string) {
	if e.printed[subject] != why {
		e.printed[subject] = why
		e.print("waiting for %s: %s", subject, why)
	}
}

// inspect returns why a consumer is waited for; "" if it is to be evicted.
func (e *eviction) inspect(ctx context.Context, c consumer) (string, error) {
	if !c.pod() {
		return "it is not a pod; delete it, or its pods", nil
	}
	pod, err := e.client.CoreV1().Pods(c.namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return decide(c, nil, e.force), nil
	}
	if err != nil {
		return "", cluster.Explain("reading "+c.String(), "get on pods in namespace "+c.namespace, err)
	}
	return decide(c, pod, e.force), nil
}

// evict evicts a pod, and returns why it is waited for.
func (e *eviction) evict(ctx context.Context, c consumer) (string, error) {
	err := e.client.PolicyV1().Evictions(c.namespace).Evict(ctx, &policyapi.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: c.namespace, Name: c.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}},
	})
	switch {
	case err == nil:
		e.print("%s evicted", c)
		return terminating, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return deleted, nil
	case apierrors.IsTooManyRequests(err):
		return "a PodDisruptionBudget allows no eviction now: " + err.Error(), nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return terminating, nil
	case apierrors.IsInternalError(err): // such as a pod with several budgets
		return "the API server did not evict it: " + err.Error(), nil
	}
	return "", cluster.Explain("evicting "+c.String(), "create on pods/eviction in namespace "+c.namespace, err)
}
