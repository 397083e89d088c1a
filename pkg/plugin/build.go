package plugin

import (
	"context"
	"errors"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
	"github.com/prism-gpu/prism/pkg/podresources"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// statusDelay is longer than the claims of pods that start together take, and shorter than a container takes to start.
const statusDelay = 200 * time.Millisecond

// Plugin is everything that runs. What Run has in the background can be called step by step in its place.
type Plugin struct {
	*Core
	layout   *nodeLayout
	statuses *kube.Statuses
	serving  *serving
	leader   *leader
	profiles *profiling
	preparedReports
	// former serves the kubelet under earlier driver names.
	former *formerServing
}

// preparedReports change the statuses of prepared claims.
type preparedReports struct {
	// following writes those of claims whose profiles have changed, until the context ends.
	following func(ctx context.Context) error
	// refused reports a container that prism-hook has failed.
	refused func(r *checkpoint.Record, device, why string)
}

// Build builds everything and serves nothing. It opens the node's files and inspects the driver once; a driver that does not answer is an
// error only where the operator asked for that and no claim would suffer.
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
	calls := &driver.Calls{}
	gone := dropping(machine.State.profiles)
	statuses := newStatuses(ctx, cfg, api, calls, gone)
	profiles := newProfiling(ctx, machine, api.Claims)
	core, err := newCore(ctx, machine, layout.Layout, profiles, coreReports{
		events: api.Events, retrying: func(rc *resourceapi.ResourceClaim, cause error) {
			gone(string(rc.UID))
			retrying(ctx, statuses, rc, cause)
		},
		userNamespace: kube.UserNamespaces{Client: api.Claims, NodeName: cfg.NodeName, Crun: a.crun}.PodByRunc,
	})
	if err == nil {
		err = core.begin(ctx, read, api.Events)
	}
	if err != nil {
		return nil, errors.Join(err, closeUnused(statuses, machine))
	}
	tx := core.Claims
	reports := driver.ClaimStatus{
		Statuses: statuses, Node: func() *gpu.Node { return machine.Inventory.Current().Node }, StepData: tx.Steps().StatusData,
		Exporter: cfg.Exporter, Profile: machine.State.profiles.conditions, Library: machine.State.profiles.library,
		Injected: machine.programs.Injection.Condition,
	}
	followed, following := machine.State.profiles.follow(reports, api.ClaimEvents)
	metrics := newMetrics(a.Version, cfg, machine, layout, tx, core.Intervals, damaged)
	serving := newServing(cfg, machine, layout, api, driverPorts{tx, followed, metrics, calls})
	return &Plugin{
		Core: core, layout: layout, statuses: statuses, profiles: profiles, serving: serving,
		preparedReports: preparedReports{following: following, refused: reports.ContainerRefused},
		former:          &formerServing{names: machine.State.former, api: api, ports: driverPorts{tx, followed, metrics, calls}, bootID: machine.State.BootID},
		leader: &leader{
			locks: machine.State.Locks, othersEnded: machine.State.former.othersEnded, layout: layout, intervals: core.Intervals, mps: core.MPS, reconciler: newReconciler(cfg, machine.State, api, tx, metrics),
			registered: serving.registered, nodeReports: newNodeReports(cfg, machine, api, followed.Prepared),
		},
	}, nil
}

func newNodeReports(cfg *config.Plugin, machine *Machine, api API, changed func(r *checkpoint.Record)) nodeReports {
	return nodeReports{
		profiles: func(ctx context.Context) {
			keepReports(ctx, machine, newReportsCluster(cfg, api.Background, klog.FromContext(ctx)))
		},
		injection: func(ctx context.Context) {
			machine.programs.Injection.Run(ctx, programs.InjectionReports{
				Events: api.Events, Records: machine.Kept, Changed: changed,
				Uses: podresources.Client{Socket: cfg.Paths.KubeletPodResources, CDIKind: cdi.Kind(cfg.DriverName)}.Containers,
			})
		},
	}
}

// retrying reports why a claim waits: in its status, and in the log with what the status must not say about other claims.
func retrying(ctx context.Context, statuses *kube.Statuses, rc *resourceapi.ResourceClaim, cause error) {
	values := append([]any{"claim", klog.KObj(rc), "claimUID", rc.UID, "reason", cause.Error()}, prepare.LogValues(cause)...)
	klog.FromContext(ctx).V(2).Info("Claim is retried", values...)
	driver.ClaimStatus{Statuses: statuses}.Refused(rc, cause)
}

func newStatuses(ctx context.Context, cfg *config.Plugin, api API, calls *driver.Calls, gone func(claimUID string)) *kube.Statuses {
	return kube.NewStatuses(kube.StatusesOptions{
		Client: api.Background, DriverName: cfg.DriverName, Delay: statusDelay, Quiet: calls.Quiet,
		OnGone: func(c kube.Claim) { gone(string(c.UID)) },
		OnError: func(c kube.Claim, err error) {
			klog.FromContext(ctx).Error(err, "Claim status is not written yet", "claim", c)
		},
	})
}
