package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is the cluster of a throughput measurement: an API server whose scheduler and controller manager are stopped.
type Cluster struct {
	Kubeconfig string
	// Scheduler, ControllerManager and APIServer are paths of programs; the run starts the first two.
	Scheduler, ControllerManager, APIServer string
	// Work is the directory of logs.
	Work string
	// Nodes is the number of fake nodes, Pods the maximum number of pods of a phase (see budget).
	Nodes, Pods int
	// Full is the fraction of nodes that are full in phases on full nodes, 0 to 1.
	Full float64
	// Limit is the time limit of a phase.
	Limit time.Duration
	// Progress is called with progress messages.
	Progress func(format string, args ...any)
}

// Phase is a series of pods with the same request, on empty or full nodes.
type Phase struct {
	RequestKind RequestKind
	Full        bool
}

// ThroughputRow is the result of a phase.
type ThroughputRow struct {
	Layout string
	Nodes  int
	Phase  Phase
	// Pods is the number of pods, Bound how many of them got a node in time.
	Pods, Bound int
	PodsPerSec  float64
	// SchedulerCPU and APIServerCPU are per pod.
	SchedulerCPU, APIServerCPU time.Duration
	// SchedulerMemory and APIServerMemory are the resident bytes at the end.
	SchedulerMemory, APIServerMemory int64
	Load                             string
}

// Throughput measures the phases of a layout, one after another. Nodes are filled before the first phase on full nodes.
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
			if err := fake.fill(ctx, fillRequest(l), count); err != nil {
				return rows, err
			}
		}
		row, err := c.phase(ctx, fake, fmt.Sprintf("phase-%d", i), phase, c.budget(l, phase.Full))
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// budget returns the number of pods of a phase: at most half of the free devices, so that the last pods need not search.
func (c *Cluster) budget(l *Layout, full bool) int {
	free := c.Nodes
	if full {
		free -= int(c.Full * float64(c.Nodes))
	}
	devices := free * GPUs
	if fillRequest(l) == RequestProfile {
		devices *= smallestPerGPU
	}
	return max(2, min(c.Pods, devices/2))
}

// fillRequest returns the request with which full nodes are filled.
func fillRequest(l *Layout) RequestKind {
	if l.Requests[RequestProfile] != nil {
		return RequestProfile
	}
	return RequestGPU
}

// phase creates pods, waits for their claims, starts a new scheduler that places them, and deletes them.
func (c *Cluster) phase(ctx context.Context, fake *fakeCluster, name string, phase Phase, pods int) (row ThroughputRow, err error) {
	row = ThroughputRow{Layout: fake.layout.Name, Nodes: c.Nodes, Phase: phase, Pods: pods}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := fake.watchPods(watching, name)
	if err := fake.createPods(ctx, name, phase.RequestKind, pods); err != nil {
		return row, err
	}
	if err := seen.wait(ctx, c.Limit+time.Minute, pods, 0); err != nil {
		return row, fmt.Errorf("waiting for the pods' claims: %w", err)
	}
	scheduler, err := c.startScheduler(name)
	if err != nil {
		return row, err
	}
	defer func() {
		scheduler.stop()
		err = errors.Join(err, fake.clear(ctx, name))
	}()
	server, err := findProcess(c.APIServer)
	if err != nil {
		return row, err
	}
	// The scheduler fills its caches before it places the first pod.
	if err := seen.wait(ctx, c.Limit+time.Minute, pods, 1); err != nil {
		return row, fmt.Errorf("waiting for the first pod: %w", err)
	}
	before, err := readUsage(scheduler.process, server)
	if err != nil {
		return row, err
	}
	_, counted := seen.counts()
	err = seen.wait(ctx, c.Limit, pods, pods)
	if err != nil && !errors.Is(err, errLimit) {
		return row, err
	}
	after, err := readUsage(scheduler.process, server)
	if err != nil {
		return row, err
	}
	_, row.Bound = seen.counts()
	row.PodsPerSec = seen.rate()
	if n := time.Duration(row.Bound - counted); n > 0 {
		row.SchedulerCPU = (after.scheduler - before.scheduler) / n
		row.APIServerCPU = (after.server - before.server) / n
	}
	row.SchedulerMemory, row.APIServerMemory, row.Load = after.schedulerMemory, after.serverMemory, loadAverage()
	c.Progress("%s: %s, full %t: %d of %d pods, %.1f/s", row.Layout, phase.RequestKind, phase.Full, row.Bound, pods, row.PodsPerSec)
	return row, nil
}

// startScheduler starts a scheduler whose client is not rate-limited.
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

// usage is the resource usage of the processes so far.
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

// ThroughputRequests returns the measured requests: the requests for the layout's smallest device.
func ThroughputRequests(l *Layout) []RequestKind {
	switch {
	case l.Requests[RequestProfileClass] != nil:
		return []RequestKind{RequestProfileClass, RequestProfileCapacity}
	case l.Requests[RequestProfile] != nil:
		return []RequestKind{RequestProfile}
	}
	return []RequestKind{RequestGPU}
}
