package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/publish"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

const (
	// patience is how long one call retries; the kubelet gives it 45 s.
	patience = 40 * time.Second
	// debtAfter is how long a pod is kept for effects that cannot be undone.
	debtAfter = 2 * time.Minute
	// statusDelay is longer than the claims of pods that start together take, and shorter than a container takes to start.
	statusDelay = 200 * time.Millisecond
	// firstRead is how long the start waits for the node's configuration; it is read again in the background.
	firstRead = time.Second
)

// wire builds everything and starts nothing.
func wire(ctx context.Context, cfg *config.Plugin) (*program, error) {
	host := hostfs.New(cfg.Paths.HostRoot)
	bootID, err := host.BootID()
	if err != nil {
		return nil, err
	}
	kept, err := openState(cfg, bootID)
	if err != nil {
		return nil, err
	}
	hook, err := findHook(ctx, cfg, host, kept.specs, imageHook)
	if err != nil {
		return nil, err
	}
	clients, err := connect(cfg)
	if err != nil {
		return nil, err
	}

	events := kube.NewEvents(clients.background, cfg.DriverName, cfg.NodeName)
	if err := events.Start(ctx); err != nil {
		return nil, err
	}
	p := &program{cfg: cfg, hook: hook, locks: kept.locks, events: events}
	p.applyFlags(ctx, clients)
	p.inventory = watchDriver(cfg, host, hook.Path, func() (inventory.Owned, error) { return p.owned(host, bootID) })
	p.tool = setting(p.inventory)
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
	if err := p.transact(ctx, host, kept, bootID, reports); err != nil {
		return nil, err
	}
	if err := firstLook(ctx, cfg, p.inventory, p.tx); err != nil {
		return nil, err
	}
	p.firstOffer(ctx)
	p.keeper = p.keep(ctx, kept.notes)
	p.slices = p.newSlices(ctx, clients)
	p.publisher = driver.NewPublisher(p.offering, p.published(), p.slices)
	p.lookForConflicts(ctx, host, clients)
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
func (p *program) transact(ctx context.Context, host *hostfs.FS, kept state, bootID string, reports driver.ClaimStatus) error {
	instances, mode, static := cutting(host, p.inventory)
	beside := &driver.Beside{Flags: p.offering.Flags, CharDevices: host.CharDevices, Locate: host.Locate, Events: p.events}
	tx, damaged, err := prepare.New(prepare.Ports{
		Records: kept.records, Locks: kept.locks,
		Planner: claim.Source{
			Driver: p.cfg.DriverName, NodeName: p.cfg.NodeName, Monitor: p.published().Monitor, Offered: p.offering.Now, Standby: p.offering.Standby,
		},
		Specs: struct {
			*cdi.Author
			*cdi.Dir
		}{author(host, p.inventory, beside), kept.specs},
		Steps: map[string]prepare.Step{
			claim.StepMIG:      instances,
			claim.StepInterval: timeslice.Step{Tool: p.tool, Notes: kept.notes},
		},
		Needs: map[string]prepare.Need{claim.NeedMIG: mode, claim.NeedWhole: mode}, Static: static,
	}, prepare.Settings{
		CDIKind: cdi.Kind(p.cfg.DriverName), BootID: bootID, Writer: version, Patience: patience, DebtAfter: debtAfter,
		Now: time.Now, Retrying: func(rc *claimObject, cause error) { retrying(ctx, reports, rc, cause) },
		Damaged: func(err error) { p.setAside(ctx, err) }, Owing: p.owe,
		Withheld: func() error { return p.conflicts.Withheld() }, // which are known before the first call
		Found:    func(records []*checkpoint.Record) { p.found.Store(&records) },
	})
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
