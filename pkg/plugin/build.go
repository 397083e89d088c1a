package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// statusDelay is longer than the claims of pods that start together take, and shorter than a container takes to start.
const statusDelay = 200 * time.Millisecond

// Plugin is everything that runs.
type Plugin struct {
	machine  *Machine
	layout   *nodeLayout
	statuses *kube.Statuses
	serving  *serving
	leader   *leader
}

// Build builds everything and serves nothing. It opens the node's files and looks at the driver once; a driver that does not answer is an
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
	layout := newLayout(ctx, cfg, machine, source, api)
	calls := &driver.Calls{}
	statuses := newStatuses(ctx, cfg, api, calls)
	reports := driver.ClaimStatus{Statuses: statuses, Node: func() *gpu.Node { return machine.Inventory.Current().Node }}
	tx, found, err := transact(ctx, machine, layout, reports, damaged)
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	reports.StepData = tx.Steps().StatusData // claims are prepared from here on
	if err := firstLook(ctx, cfg, machine, tx); err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	read.Records = found
	layout.Begin(ctx, read)
	keeper := newKeeper(ctx, machine, layout, tx, api.Events)
	metrics := newMetrics(a.Version, cfg, machine, layout, tx, keeper, damaged)
	return &Plugin{
		machine: machine, layout: layout, statuses: statuses,
		serving: newServing(cfg, machine, layout, api, driverPorts{tx, reports, metrics, calls}),
		leader: &leader{
			locks: machine.State.Locks, layout: layout, keeper: keeper, reconciler: newReconciler(cfg, api, tx, metrics),
		},
	}, nil
}

// transact builds what prepares claims. found are the records that it has read, nil where they cannot be read.
func transact(ctx context.Context, m *Machine, l *nodeLayout, reports driver.Reports, damaged *damagedRecords) (
	tx *prepare.Transaction, found []*checkpoint.Record, err error,
) {
	settings := m.Settings()
	settings.Retrying = func(rc *resourceapi.ResourceClaim, cause error) { retrying(ctx, reports, rc, cause) }
	l.Bind(&settings)
	settings.Loaded = func(records []*checkpoint.Record) { found = append([]*checkpoint.Record{}, records...) }
	tx, unread, err := prepare.New(m.Ports(l, l.events), settings)
	for _, err := range unread {
		damaged.setAside(err)
	}
	return tx, found, err
}

// retrying reports why a claim waits: in its status, and in the log with what the status must not say about other claims.
func retrying(ctx context.Context, reports driver.Reports, rc *resourceapi.ResourceClaim, cause error) {
	values := append([]any{"claim", klog.KObj(rc), "claimUID", rc.UID, "reason", cause.Error()}, prepare.LogValues(cause)...)
	klog.FromContext(ctx).V(2).Info("Claim is retried", values...)
	reports.Refused(rc, cause.Error())
}

// firstLook fails only where the operator asked for it and nobody's claim would suffer.
func firstLook(ctx context.Context, cfg *config.Plugin, m *Machine, tx *prepare.Transaction) error {
	err := m.Inventory.Refresh(ctx)
	if claims, _ := tx.Counts(); err != nil && cfg.Driver.FailOnInitError != nil && *cfg.Driver.FailOnInitError && claims == 0 {
		return fmt.Errorf("ending, as failOnInitError wants: %w", err)
	}
	if err != nil {
		klog.FromContext(ctx).Info("No usable NVIDIA driver yet: serving without devices and trying again", "reason", err.Error())
	}
	return nil
}

func newStatuses(ctx context.Context, cfg *config.Plugin, api API, calls *driver.Calls) *kube.Statuses {
	return kube.NewStatuses(kube.StatusesOptions{
		Client: api.Background, DriverName: cfg.DriverName, Delay: statusDelay, Quiet: calls.Quiet,
		OnError: func(c kube.Claim, err error) {
			klog.FromContext(ctx).Error(err, "Claim status is not written yet", "claim", c)
		},
	})
}
