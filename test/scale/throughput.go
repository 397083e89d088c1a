package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is where throughput is measured: an API server whose own scheduler and controller manager are stopped.
type Cluster struct {
	Kubeconfig string
	// Scheduler, ControllerManager and APIServer are the programs' files; the first two are started by the run.
	Scheduler, ControllerManager, APIServer string
	// Work is a folder for logs.
	Work string
	// Nodes is how many fake nodes there are, Pods how many pods a phase has.
	Nodes, Pods int
	// Full is how much of the nodes the phases on full nodes find taken, 0 to 1.
	Full float64
	// Limit ends a phase whose pods do not all get a node.
	Limit time.Duration
	// Progress is called with what is going on.
	Progress func(format string, args ...any)
}

// Phase is a row of pods that the scheduler places while the nodes are in a state.
type Phase struct {
	Ask  Ask
	Full bool
}

// ThroughputRow is how fast the pods of a phase were placed.
type ThroughputRow struct {
	Layout     string
	Nodes      int
	Phase      Phase
	Bound      int
	PodsPerSec float64
	// SchedulerCPU and APIServerCPU are per pod.
	SchedulerCPU, APIServerCPU time.Duration
	// SchedulerMemory and APIServerMemory are resident bytes at the end.
	SchedulerMemory, APIServerMemory int64
	Load                             string
}

// Throughput measures the phases of a layout, one after another. Nodes become full before the first phase that wants it and stay so.
func (c *Cluster) Throughput(ctx context.Context, l *Layout, phases []Phase) ([]ThroughputRow, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	node, err := Simulated(ctx)
	if err != nil {
		return nil, err
	}
	fake := &fakeCluster{client: client, layout: l, node: node, nodes: c.Nodes}
	c.Progress("%s: creating %d nodes", l.Name, c.Nodes)
	if err := fake.createNodes(ctx); err != nil {
		return nil, err
	}
	manager, err := start(filepath.Join(c.Work, "controller-manager.log"), c.ControllerManager, "--kubeconfig="+c.Kubeconfig,
		"--authentication-kubeconfig="+c.Kubeconfig, "--authorization-kubeconfig="+c.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=resourceclaim-controller", "--kube-api-qps=5000", "--kube-api-burst=5000")
	if err != nil {
		return nil, err
	}
	defer manager.stop()
	var rows []ThroughputRow
	full := false
	for i, phase := range phases {
		if phase.Full && !full {
			full = true
			count := int(c.Full * float64(c.Nodes))
			c.Progress("%s: filling %d nodes", l.Name, count)
			if err := fake.fill(ctx, fillAsk(l), count); err != nil {
				return rows, err
			}
		}
		row, err := c.phase(ctx, fake, fmt.Sprintf("phase-%d", i), phase)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// fillAsk is what full nodes are full of.
func fillAsk(l *Layout) Ask {
	if l.Asks[AskProfile] != nil {
		return AskProfile
	}
	return AskGPU
}

// phase creates the pods, waits until all have their claims, and then lets a new scheduler place them.
func (c *Cluster) phase(ctx context.Context, fake *fakeCluster, name string, phase Phase) (row ThroughputRow, err error) {
	row = ThroughputRow{Layout: fake.layout.Name, Nodes: c.Nodes, Phase: phase}
	watching, err := fake.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: phaseLabel + "=" + name})
	if err != nil {
		return row, err
	}
	defer watching.Stop()
	if err := fake.createPods(ctx, name, phase.Ask, c.Pods); err != nil {
		return row, err
	}
	seen := podsSeen{claims: map[string]bool{}, bound: map[string]time.Time{}}
	if err := seen.follow(ctx, watching, c.Limit+time.Minute, func() bool { return len(seen.claims) == c.Pods }); err != nil {
		return row, fmt.Errorf("waiting for the pods' claims: %w", err)
	}
	scheduler, err := c.startScheduler(name)
	if err != nil {
		return row, err
	}
	defer scheduler.stop()
	server, err := findProcess(c.APIServer)
	if err != nil {
		return row, err
	}
	// The scheduler reads everything before it places the first pod.
	if err := seen.follow(ctx, watching, c.Limit+time.Minute, func() bool { return len(seen.bound) > 0 }); err != nil {
		return row, fmt.Errorf("waiting for the first pod: %w", err)
	}
	before, err := readUsage(scheduler.process, server)
	if err != nil {
		return row, err
	}
	counted := len(seen.bound)
	err = seen.follow(ctx, watching, c.Limit, func() bool { return len(seen.bound) == c.Pods })
	if err != nil && !errors.Is(err, errLimit) {
		return row, err
	}
	after, err := readUsage(scheduler.process, server)
	if err != nil {
		return row, err
	}
	row.Bound = len(seen.bound)
	row.PodsPerSec = seen.rate()
	if pods := time.Duration(len(seen.bound) - counted); pods > 0 {
		row.SchedulerCPU = (after.scheduler - before.scheduler) / pods
		row.APIServerCPU = (after.server - before.server) / pods
	}
	row.SchedulerMemory, row.APIServerMemory, row.Load = after.schedulerMemory, after.serverMemory, loadAverage()
	c.Progress("%s: %s, full %t: %d of %d pods, %.1f/s", row.Layout, phase.Ask, phase.Full, row.Bound, c.Pods, row.PodsPerSec)
	return row, nil
}

// startScheduler starts a scheduler that no limit of its client slows down.
func (c *Cluster) startScheduler(name string) (*started, error) {
	config := filepath.Join(c.Work, name+"-scheduler.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s, qps: 5000, burst: 10000}
leaderElection: {leaderElect: false}
`, c.Kubeconfig), 0o600)
	if err != nil {
		return nil, err
	}
	return start(filepath.Join(c.Work, name+"-scheduler.log"), c.Scheduler, "--config="+config, "--authentication-kubeconfig="+c.Kubeconfig,
		"--authorization-kubeconfig="+c.Kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0")
}

// usage is what the processes have used so far.
type usage struct {
	scheduler, server             time.Duration
	schedulerMemory, serverMemory int64
}

func readUsage(scheduler, server process) (u usage, err error) {
	var errs [4]error
	u.scheduler, errs[0] = scheduler.cpu()
	u.server, errs[1] = server.cpu()
	u.schedulerMemory, errs[2] = scheduler.resident()
	u.serverMemory, errs[3] = server.resident()
	return u, errors.Join(errs[:]...)
}

// podsSeen is what a watch has shown of the pods of a phase.
type podsSeen struct {
	claims map[string]bool
	bound  map[string]time.Time
}

// errLimit: the condition did not come true in time.
var errLimit = errors.New("it took too long")

// follow reads events until the condition is true.
func (s *podsSeen) follow(ctx context.Context, w watch.Interface, limit time.Duration, done func() bool) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("%w: %d pods have claims, %d have nodes", errLimit, len(s.claims), len(s.bound))
		case event, open := <-w.ResultChan():
			if !open {
				return errors.New("the watch ended")
			}
			if pod, ok := event.Object.(*corev1.Pod); ok {
				s.note(pod)
			}
		}
	}
	return nil
}

func (s *podsSeen) note(pod *corev1.Pod) {
	if len(pod.Status.ResourceClaimStatuses) > 0 {
		s.claims[pod.Name] = true
	}
	if _, known := s.bound[pod.Name]; !known && pod.Spec.NodeName != "" {
		s.bound[pod.Name] = time.Now()
	}
}

// rate is pods per second between the first and the last one.
func (s *podsSeen) rate() float64 {
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

// ThroughputAsks are the asks whose throughput is measured: every way to the smallest device.
func ThroughputAsks(l *Layout) []Ask {
	if l.Asks[AskProfile] == nil {
		return []Ask{AskGPU}
	}
	return slices.DeleteFunc(asksInOrder(l), func(a Ask) bool { return a == AskGPU || a == AskMemory })
}
