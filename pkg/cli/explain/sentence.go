package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// subject is "Pod ml/train-0, Pending for 14m".
func (r *run) subject(e *Explanation) string {
	text := e.Kind + " " + e.Namespace + "/" + e.Name
	if r.pod == nil || r.pod.UID == "" {
		return text
	}
	text += ", Pending"
	if created := r.pod.CreationTimestamp; !created.IsZero() && r.options.Now > created.Unix() {
		text += " for " + age(time.Duration(r.options.Now-created.Unix())*time.Second)
	}
	return text
}

func age(d time.Duration) string { return duration.HumanDuration(d) }

// sentence is the first line: the state, and the cause that is the nearest to success.
func (r *run) sentence(e *Explanation, places []place) string {
	claims := claimNames(e, places)
	if e.Fits {
		fitting := 0
		for i := range places {
			if places[i].outcome.cause == Fits {
				fitting++
			}
		}
		text := fmt.Sprintf("%s: %s now on %s", r.subject(e), claims.verb("fits", "fit"), plural(fitting, "node", "nodes"))
		if message, ago := r.schedulerSaid(); message != "" {
			text += fmt.Sprintf("; the scheduler said %s ago: %s", age(ago), message)
		}
		return text
	}
	if text := r.elsewhere(places); text != "" {
		return r.subject(e) + ": " + text
	}
	best := Cause("")
	for i := range places {
		if cause := places[i].outcome.cause; rank[cause] > rank[best] || best == "" {
			best = cause
		}
	}
	return r.subject(e) + ": " + r.reason(best, claims, places)
}

// schedulerSaid is the scheduler's last message about the pod, and its age; "" if there is none.
func (r *run) schedulerSaid() (string, time.Duration) {
	if facts := r.options.Facts; facts.Scheduler != "" || r.pod == nil {
		return facts.Scheduler, facts.SchedulerAge
	}
	for _, c := range r.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message, time.Duration(r.options.Now-c.LastTransitionTime.Unix()) * time.Second
		}
	}
	return "", 0
}

// elsewhere explains allocated claims whose node refuses the pod; "" if there are none.
func (r *run) elsewhere(places []place) string {
	if len(r.allocated) == 0 {
		return ""
	}
	for i := range places {
		p := &places[i]
		if p.refusal != nil && p.node.Object != nil && elsewhere(r.allocated, p.node) == nil {
			var names claimList
			for _, claim := range r.allocated {
				names = append(names, "claim "+claim.Name)
			}
			return fmt.Sprintf("%s allocated on node %s, which the pod cannot use: %s, %s",
				names.verb("is", "are"), p.node.Name, p.refusal.cause, p.refusal.detail)
		}
	}
	return ""
}

// reason is the clause for the cause that is the nearest to success.
func (r *run) reason(cause Cause, claims claimList, places []place) string {
	switch cause {
	case "":
		return "the cluster has no nodes with devices"
	case ClassMissing:
		return "a DeviceClass of " + claims.text() + " does not exist"
	case ExpressionError:
		return "an expression fails on a device, so the scheduler tries no node"
	case NoDevices:
		if wished := wishedDriver(places); wished != "" {
			return "no node has devices of driver " + wished
		}
		return "no node has devices"
	case PoolIncomplete:
		return "the ResourceSlices of the nodes are incomplete or invalid"
	case Selector:
		return "no node has a device that " + claims.verb("selects", "select")
	case Capacity:
		return "no device has the capacity that " + claims.verb("requests", "request")
	case Count:
		return "no node has enough devices for " + claims.text()
	case Constraint:
		return "no node has devices that satisfy the constraints of " + claims.text()
	case Requests:
		return "no node has devices for all requests of " + claims.text() + " together"
	case Taint:
		return "the devices for " + claims.text() + " have taints that are not tolerated"
	case InUse:
		return "no node has a free device for " + claims.text()
	case SearchTooLong:
		return "the search for devices for " + claims.text() + " takes too long"
	default:
		return "the nodes with devices do not accept the pod"
	}
}

// claimList are names of claims.
type claimList []string

func claimNames(e *Explanation, places []place) claimList {
	if e.Kind != "Pod" {
		return nil
	}
	var names claimList
	for i := range places {
		for _, claim := range places[i].asked.claims {
			name := "claim " + claim.Name
			if isMade(claim) {
				name = "its extended resources"
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (c claimList) text() string {
	switch len(c) {
	case 0:
		return "it"
	default:
		return strings.Join(c, " and ")
	}
}

func (c claimList) verb(one, many string) string {
	if len(c) > 1 || len(c) == 1 && c[0] == "its extended resources" {
		return c.text() + " " + many
	}
	return c.text() + " " + one
}

func wishedDriver(places []place) string {
	for i := range places {
		for _, alternatives := range places[i].asked.wishes {
			for _, w := range alternatives {
				if d := w.driver(); d != "" {
					return d
				}
			}
		}
	}
	return ""
}
