package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/publish"
)

const (
	// statusDelay is longer than the claims of pods that start together take, and shorter than a container takes to start.
	statusDelay = 200 * time.Millisecond
	// firstRead is how long the start waits for the node's configuration; it is read again in the background.
	firstRead = time.Second
)

// wire builds everything and starts nothing.
func wire(ctx context.Context, cfg *config.Plugin, a plugin.Adapters) (*program, error) {
	clients, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	events := kube.NewEvents(clients.background, cfg.DriverName, cfg.NodeName)
	if err := events.Start(ctx); err != nil {
		return nil, err
	}
	p := &program{cfg: cfg, events: events}
	p.applyFlags(ctx, clients)
	if p.machine, err = plugin.OpenMachine(ctx, cfg, a, func(err error) { p.setAside(ctx, err) }); err != nil {
		return nil, err
	}
	p.inventory = p.machine.Inventory
	p.offering = p.offer(clients)
	p.watching = p.watchConfig(clients, p.offering.Reload)
	node := func() *gpu.Node { return p.inventory.Current().Node }
	p.statuses = kube.NewStatuses(kube.StatusesOptions{
		Client: clients.background, DriverName: cfg.DriverName, Delay: statusDelay,
		OnError: func(c kube.Claim, err error) {
			klog.FromContext(ctx).Error(err, "Claim status is not written yet", "claim", c)
		},
	})
	reports := driver.ClaimStatus{Statuses: p.statuses, Node: node}
	if err := p.transact(ctx, reports); err != nil {
		return nil, err
	}
	if err := firstLook(ctx, cfg, p.inventory, p.tx); err != nil {
		return nil, err
	}
	p.firstOffer(ctx)
	p.keeper = p.keep(ctx)
	p.slices = p.newSlices(ctx, clients)
	p.publisher = driver.NewPublisher(p.offering, p.published(), p.slices)
	p.lookForConflicts(ctx, a.Host, clients)
	p.found.Store(nil) // from now on claims come and go
	p.publisher.Owe(p.owed)
	p.serve(clients, reports)
	return p, nil
}

// published says for whom ResourceSlices are, and what they have besides what the GPUs are offered as.
func (p *program) published() publish.Options {
	return publish.Options{
		DriverName: p.cfg.DriverName, NodeName: p.cfg.NodeName, Monitor: p.cfg.MonitorDevices == config.MonitorPerNode,
	}
}

// transact builds what prepares claims.
func (p *program) transact(ctx context.Context, reports driver.ClaimStatus) error {
	settings := p.machine.Settings()
	settings.Retrying = func(rc *claimObject, cause error) { retrying(ctx, reports, rc, cause) }
	settings.Owing = p.owe
	settings.Withheld = func() error { return p.conflicts.Withheld() } // which are known before the first call
	settings.Found = func(records []*checkpoint.Record) { p.found.Store(&records) }
	tx, damaged, err := prepare.New(p.machine.Ports(p.offering, p.events), settings)
	if err != nil {
		return err
	}
	for _, err := range damaged {
		p.setAside(ctx, err)
	}
	p.tx = tx
	return nil
}

// retrying reports why a claim waits: in its status, and in the log with what the status must not say about other claims.
func retrying(ctx context.Context, reports driver.ClaimStatus, rc *claimObject, cause error) {
	values := append([]any{"claim", klog.KObj(rc), "claimUID", rc.UID, "reason", cause.Error()}, prepare.LogValues(cause)...)
	klog.FromContext(ctx).V(2).Info("Claim is retried", values...)
	reports.Refused(rc, cause.Error())
}

// connections are two, so that background writes never use up what claims wait for.
type connections struct{ claims, background kubernetes.Interface }

func connect(cfg *config.Plugin) (connections, error) {
	base, err := rest.InClusterConfig()
	if cfg.Kubeconfig != "" {
		base, err = clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	}
	if err != nil {
		return connections{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	base.QPS, base.Burst, base.UserAgent = float32(cfg.KubeAPI.QPS), cfg.KubeAPI.Burst, "prism-kubelet-plugin/"+version
	base.ContentType, base.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	claims, err := kubernetes.NewForConfig(base)
	if err != nil {
		return connections{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	background, err := kubernetes.NewForConfig(rest.CopyConfig(base))
	if err != nil {
		return connections{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	return connections{claims: claims, background: background}, nil
}
