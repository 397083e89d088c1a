package plugin

import (
	"context"
	"errors"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// statusDelay is longer than the claims of pods that start together take, and shorter than a container takes to start.
const statusDelay = 200 * time.Millisecond

// Plugin is everything that runs. Instead of Run, its background work can be called step by step.
type Plugin struct {
	*Core
	layout   *nodeLayout
	statuses *kube.Statuses
	serving  *serving
	leader   *leader
	// refused reports a container that prism-hook has failed.
	refused func(r *checkpoint.Record, device, why string)
	// former serves the kubelet under earlier driver names.
	former *formerServing
	// node follows the node's own Node.
	node *nodeWatch
}

// Build builds everything and serves nothing. It opens the node's files and inspects the driver once; a driver that does not answer is an
// error only if the operator configured that and no claim would suffer.
func Build(ctx context.Context, cfg *config.Plugin, a Adapters) (*Plugin, error) {
	api, err := a.API(ctx)
	if err != nil {
		return nil, err
	}
	source, cfg, read := startConfig(ctx, cfg, a, api)
	damaged := &damagedRecords{logger: klog.FromContext(ctx), events: api.Events}
	machine, err := OpenMachine(ctx, cfg, a, damaged.setAside)
	if err != nil {
		return nil, err
	}
	layout := newLayout(cfg, machine, source, api)
	machine.findings.connect(layout)
	calls := &driver.Calls{}
	gone := gone(machine.Extensions)
	statuses := newStatuses(ctx, cfg, api, calls, machine.Extensions)
	for _, e := range extension.All[extension.Connector](machine.Extensions) {
		e.Connect(ctx, extension.Connection{Claims: api.Claims, Background: api.Background, ClaimEvents: api.ClaimEvents, Records: machine.Kept})
	}
	healths := healthReportsOf(cfg, machine, layout.Layout)
	core, err := newCore(ctx, machine, layout.Layout, coreReports{
		events: api.Events, unhealthy: healths.unhealthy(), retrying: func(rc *resourceapi.ResourceClaim, cause error) {
			gone(string(rc.UID))
			retrying(ctx, driver.ClaimStatus{Statuses: statuses, Extensions: statusExtensions(machine.Extensions)}, rc, cause)
		},
		userNamespace: kube.UserNamespaces{Client: api.Claims, NodeName: cfg.NodeName, Crun: a.crun}.PodByRunc,
	})
	var maintenance *Maintenance
	if err == nil {
		maintenance = NewMaintenance(ctx, MaintenancePorts{Core: core, API: api, Monitor: machine.Health, Release: machine.Inventory.Release}, cfg.Health.NodeConditions)
		err = core.begin(ctx, read)
	}
	if err != nil {
		return nil, errors.Join(err, closeUnused(statuses, machine))
	}
	tx := core.Claims
	reports := driver.ClaimStatus{
		Statuses: statuses, Node: func() *gpu.Node { return machine.Inventory.Current().Node }, StepData: tx.Steps().StatusData,
		Extensions: statusExtensions(machine.Extensions),
		Conditions: append(healths.conditions(), driver.OfRecord(machine.programs.Injection.Condition)),
	}
	followed := driver.Reports(reports)
	for _, e := range extension.All[extension.Follower](machine.Extensions) {
		followed = e.Follow(followed)
	}
	metrics := newMetrics(a.Version, cfg, machine, layout, tx, core.Intervals, damaged)
	ports := driverPorts{tx, followed, metrics, calls, healths.port()}
	serving := newServing(cfg, machine, layout, api, ports)
	return &Plugin{
		Core: core, node: newNodeWatch(cfg, api, layout, maintenance), layout: layout, statuses: statuses, serving: serving, refused: reports.ContainerRefused,
		former: &formerServing{names: machine.State.former, api: api, ports: ports, bootID: machine.State.BootID, extensions: machine.Extensions},
		leader: &leader{
			locks: machine.State.Locks, othersEnded: machine.State.former.othersEnded, layout: layout, intervals: core.Intervals, renewed: renewed(machine.Extensions, healths), reconciler: newReconciler(cfg, machine.State, api, tx, metrics),
			registered: serving.registered, background: append(newBackground(cfg, machine, api, healths, followed.Prepared), maintenance.Lead),
		},
	}, nil
}

// newBackground returns the work beside claims: the work of extensions, the check whether containers get their devices, and the statuses of
// claims whose GPU gets or loses a problem.
func newBackground(cfg *config.Plugin, machine *Machine, api API, healths *healthReports, changed func(r *checkpoint.Record)) []func(ctx context.Context) {
	work := []func(ctx context.Context){func(ctx context.Context) { healths.lead(ctx, changed) }, func(ctx context.Context) {
		machine.programs.Injection.Run(ctx, programs.InjectionReports{
			Events: api.Events, Records: machine.Kept, Changed: changed,
			Uses: podresources.Client{Socket: cfg.Paths.KubeletPodResources, CDIKind: cdi.Kind(cfg.DriverName)}.Containers,
		})
	}}
	for _, e := range extension.All[extension.Leader](machine.Extensions) {
		work = append(work, e.Lead)
	}
	return work
}

// retrying reports why a claim waits: in its status, and in the log. Only the log also contains details about other claims.
func retrying(ctx context.Context, status driver.ClaimStatus, rc *resourceapi.ResourceClaim, cause error) {
	values := append([]any{"claim", klog.KObj(rc), "claimUID", rc.UID, "reason", cause.Error()}, prepare.LogValues(cause)...)
	klog.FromContext(ctx).V(2).Info("Claim is retried", values...)
	status.Refused(rc, cause)
}

func newStatuses(ctx context.Context, cfg *config.Plugin, api API, calls *driver.Calls, extensions prepare.Extensions) *kube.Statuses {
	gone := gone(extensions)
	return kube.NewStatuses(kube.StatusesOptions{
		Client: api.Background, DriverName: cfg.DriverName, Delay: statusDelay, Quiet: calls.Quiet, Conditions: conditionTypes(extensions),
		OnGone: func(c kube.ClaimRef) { gone(string(c.UID)) },
		OnError: func(c kube.ClaimRef, err error) {
			klog.FromContext(ctx).Error(err, "Claim status is not written yet", "claim", c)
		},
	})
}
