package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// podsSeen is the state of a phase's pods according to an informer.
type podsSeen struct {
	mu     sync.Mutex
	claims map[string]bool
	bound  map[string]time.Time
	// refused is the last message of the scheduler about a pod that it could not place.
	refused string
	// changed contains an element if anything has changed since the last receive.
	changed chan struct{}
}

// errLimit is the error of a wait that exceeds its time limit.
var errLimit = errors.New("time limit exceeded")

// watchPods tracks the pods of a phase until the context is done. It uses an informer, because the API server ends watches that are read
// too slowly.
func (c *fakeCluster) watchPods(ctx context.Context, phase string) *podsSeen {
	seen := &podsSeen{claims: map[string]bool{}, bound: map[string]time.Time{}, changed: make(chan struct{}, 1)}
	note := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			seen.note(pod)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", namespace, func(o *metav1.ListOptions) {
			o.LabelSelector = phaseLabel + "=" + phase
		}),
		ObjectType: &corev1.Pod{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, object any) { note(object) }},
	})
	go controller.RunWithContext(ctx)
	return seen
}

func (s *podsSeen) note(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(pod.Status.ResourceClaimStatuses) > 0 {
		s.claims[pod.Name] = true
	}
	if _, known := s.bound[pod.Name]; !known && pod.Spec.NodeName != "" {
		s.bound[pod.Name] = time.Now()
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.refused = c.Message
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// counts returns how many pods have claims, and how many have nodes.
func (s *podsSeen) counts() (claims, bound int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims), len(s.bound)
}

// wait waits until that many pods have claims and nodes.
func (s *podsSeen) wait(ctx context.Context, limit time.Duration, claims, bound int) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		haveClaims, haveNodes := s.counts()
		if haveClaims >= claims && haveNodes >= bound {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Errorf("%w: %d pods with claims, %d with nodes; the scheduler's last message: %q", errLimit, haveClaims, haveNodes, s.refused)
		case <-s.changed:
		}
	}
}

// rate returns the number of pods per second between the first and the last one.
func (s *podsSeen) rate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, last time.Time
	for _, at := range s.bound {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if span := last.Sub(first); span > 0 {
		return float64(len(s.bound)-1) / span.Seconds()
	}
	return 0
}
