package validate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/events"
)

// stage is a stage of the validation of a node: it returns a description of the success, or an error that says what to change.
type stage struct {
	name string
	run  func() (string, error)
}

// node runs the stages of a node, and returns their lines. The stages with a pod are only run if the others are successful.
func (f *flags) node(ctx context.Context, client *cluster.Client, name string, facts nodeFacts) (lines []string, ok bool) {
	gpus := cluster.GPUs(facts.slices)
	ok = true
	run := func(s stage) {
		found, err := s.run()
		switch {
		case err != nil:
			ok = false
			lines = append(lines, fmt.Sprintf("%s: %v", s.name, err))
		case found == "":
			lines = append(lines, s.name+": ok")
		default:
			lines = append(lines, fmt.Sprintf("%s: ok: %s", s.name, found))
		}
	}
	notes := nodeEvents(ctx, client, name, began(facts.plugins))
	run(stage{"driver", func() (string, error) { return driverStage(gpus, len(facts.slices) > 0, client.Driver, notes) }})
	run(stage{"container runtime", func() (string, error) { return runtimeOf(ctx, client, name, notes) }})
	run(stage{"plugin", func() (string, error) { return pluginStage(facts.plugins, client.Driver) }})
	if !ok {
		return lines, false
	}
	p, err := f.probe(ctx, client, name, gpus, facts.plugins)
	if err != nil {
		return append(lines, "claim: "+ended(err).Error()), false
	}
	limited, stop := context.WithTimeout(ctx, f.timeout)
	defer stop()
	run(stage{"claim", func() (string, error) { return p.claimed(limited) }})
	if ok {
		run(stage{"cuda", func() (string, error) { return p.finished(limited) }})
	}
	if err := p.remove(ctx); err != nil {
		lines = append(lines, "Warning: "+err.Error())
	}
	return lines, ok
}

// notes are the last Events of a node, by reason.
type notes map[string]*corev1.Event

// nodeEvents reads the Events of a node since a time; none if the user may not list them.
func nodeEvents(ctx context.Context, client *cluster.Client, node string, since time.Time) notes {
	list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.String(), Limit: 500,
	})
	if err != nil {
		return notes{}
	}
	return lastOf(list.Items, since)
}

// lastOf returns the last Event of each reason since a time.
func lastOf(all []corev1.Event, since time.Time) notes {
	last := notes{}
	for i := range all {
		e := &all[i]
		if known := last[e.Reason]; !seen(e).Before(since) && (known == nil || seen(known).Before(seen(e))) {
			last[e.Reason] = e
		}
	}
	return last
}

// began is the last start of a kubelet plugin, zero if none runs. A plugin that starts reports problems again, but not the end of a problem that
// only an earlier one has reported.
func began(plugins []corev1.Pod) (last time.Time) {
	for i := range plugins {
		for _, container := range plugins[i].Status.ContainerStatuses {
			if running := container.State.Running; running != nil && running.StartedAt.After(last) {
				last = running.StartedAt.Time
			}
		}
	}
	return last
}

// seen is the last time of an Event.
func seen(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

// problem returns the message of the last Event of a reason, unless an Event of the reason ended is later.
func (n notes) problem(reason, ended string) string {
	e := n[reason]
	if e == nil || n[ended] != nil && seen(e).Before(seen(n[ended])) {
		return ""
	}
	return e.Message
}

// driverStage checks that the node advertises GPUs.
func driverStage(gpus []cluster.GPU, published bool, driver string, n notes) (string, error) {
	problem := n.problem(events.NVIDIADriverUnavailable, events.NVIDIADriverAvailable)
	switch {
	case len(gpus) > 0:
		return fmt.Sprintf("version %s, GPUs: %d", gpus[0].DriverVersion, len(gpus)), nil
	case problem != "":
		return "", errors.New(problem)
	case published:
		return "", errors.New("the kubelet plugin found no GPU: install the NVIDIA driver on the node, or set nvidiaDriverRoot of the chart")
	}
	return "", fmt.Errorf("the node has no ResourceSlices of driver %s: its kubelet plugin must run", driver)
}

// oldest are the oldest supported versions of container runtimes.
var oldest = map[string]*version.Version{"containerd": version.MustParseGeneric("1.7"), "cri-o": version.MustParseGeneric("1.28")}

// runtimeOf checks the container runtime of a node.
func runtimeOf(ctx context.Context, client *cluster.Client, name string, n notes) (string, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", cluster.Explain("reading the node", "get on nodes", err)
	}
	return runtimeStage(node.Status.NodeInfo.ContainerRuntimeVersion, n)
}

// runtimeStage checks the version of the container runtime, such as containerd://2.1.4, and that the runtime applies CDI specs.
func runtimeStage(runtime string, n notes) (string, error) {
	name, number, _ := strings.Cut(runtime, "://")
	if least := oldest[name]; least != nil {
		if has, err := version.ParseGeneric(number); err == nil && has.LessThan(least) {
			return "", fmt.Errorf("%s %s does not support CDI well enough: upgrade it to %s or later", name, number, least)
		}
	}
	if problem := n.problem(events.CDIUnavailable, events.CDIAvailable); problem != "" {
		return "", errors.New(problem)
	}
	return runtime, nil
}

// pluginStage checks that a kubelet plugin of the node is ready: it is ready when the kubelet has registered it.
func pluginStage(pods []corev1.Pod, driver string) (string, error) {
	if len(pods) == 0 {
		return "", fmt.Errorf("no pod of the kubelet plugin of driver %s is on the node: check nodeSelector, affinity and tolerations in kubeletPlugin of the chart",
			driver)
	}
	for i := range pods {
		if ready(&pods[i]) {
			return "pod " + pods[i].Namespace + "/" + pods[i].Name, nil
		}
	}
	p := &pods[0]
	return "", fmt.Errorf("pod %s/%s is not ready%s; kubectl logs -n %s %s shows the reason", p.Namespace, p.Name, waiting(p), p.Namespace, p.Name)
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waiting describes why a container of the pod does not run; "" if all run.
func waiting(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		if state := pod.Status.ContainerStatuses[i].State.Waiting; state != nil {
			return strings.TrimSuffix(fmt.Sprintf(": %s: %s", state.Reason, state.Message), ": ")
		}
	}
	return ""
}
