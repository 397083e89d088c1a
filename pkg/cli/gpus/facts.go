package gpus

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
)

// The reasons of the Events that an explanation uses.
const (
	reasonClaimCreation = "FailedResourceClaimCreation"
	reasonScheduling    = "FailedScheduling"
)

// facts reads the Events of a pod. Without them an explanation lacks the scheduler's message, and is right.
func (x *explaining) facts(ctx context.Context, pod *clusterview.Pod) (of explain.Facts) {
	selector := fields.Set{"involvedObject.kind": kindPod, "involvedObject.name": pod.Name}
	list, err := x.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		err = cluster.Explain("listing Events of namespace "+pod.Namespace, "list on events in namespace "+pod.Namespace, err)
		x.once(err.Error())
		return of
	}
	var claimCreation, scheduling time.Time
	for i := range list.Items {
		e := &list.Items[i]
		if e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID {
			continue
		}
		at := lastTime(e)
		switch {
		case e.Reason == reasonClaimCreation && !at.Before(claimCreation):
			claimCreation, of.ClaimCreation = at, e.Message
		case e.Reason == reasonScheduling && !at.Before(scheduling):
			scheduling, of.Scheduler = at, e.Message
		}
	}
	if !scheduling.IsZero() {
		of.SchedulerAge = max(x.client.Clock.Now().Sub(scheduling), 0)
	}
	return of
}

// lastTime is the last time at which an Event happened.
func lastTime(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	for _, at := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time} {
		if at.After(last) {
			last = at
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
