package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/publish"
)

// layout is what decides what the GPUs are advertised as, and what publishes that.
type layout struct {
	config    *configSource
	offering  *driver.Offering
	slices    *kube.Slices
	publisher *driver.Publisher
	conflicts *driver.Conflicts
	events    driver.NodeEvents
}

// newLayout builds it; nothing is known, and nothing is published, before begin.
func newLayout(ctx context.Context, cfg *config.Plugin, m *Machine, source *configSource, api API) *layout {
	l := &layout{config: source, events: api.Events}
	l.offering = newOffering(cfg, m, source, api)
	l.slices = kube.NewSlices(kube.SlicesOptions{
		Client: api.Background, DriverName: cfg.DriverName, NodeName: cfg.NodeName,
		OnError: func(err error) { klog.FromContext(ctx).Error(err, "ResourceSlices are not published yet") },
	})
	l.publisher = driver.NewPublisher(l.offering, published(cfg), l.slices)
	l.conflicts = &driver.Conflicts{
		Sockets: m.adapters.Host.Sockets, KubeletPlugins: cfg.Paths.KubeletPlugins, DriverName: cfg.DriverName, Set: l.publisher.Conflict,
		Events: api.Events, Taints: api.probe(cfg).DeviceTaints,
	}
	return l
}

// published says for whom ResourceSlices are, and what they have besides what the GPUs are advertised as.
func published(cfg *config.Plugin) publish.Options {
	return publish.Options{DriverName: cfg.DriverName, NodeName: cfg.NodeName, Monitor: cfg.MonitorDevices == config.MonitorPerNode}
}

// newOffering builds what decides what the node's GPUs are advertised as.
func newOffering(cfg *config.Plugin, m *Machine, source *configSource, api API) *driver.Offering {
	probe := api.probe(cfg)
	return driver.NewOffering(driver.OfferingPorts{
		Inventory: m.Inventory, NodeName: cfg.NodeName, Events: api.Events, Counters: probe.PartitionableDevices, Shares: probe.CountsShares,
		Records: m.Kept, Read: source.read, Passing: passing,
		// A file may be on a filesystem that does not tell what others write, so a bad one is read again now and then.
		Watched: cfg.NodeConfig.File == "",
		Tainted: func(ctx context.Context) (map[gpu.PoolDevice]bool, error) { return api.tainted(ctx, cfg) },
		Allocated: func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			query.Driver = cfg.DriverName
			return kube.Claims{Client: api.Background}.Allocated(ctx, query)
		},
		Saved: savedLayout(cfg, m.adapters),
	})
}

func savedLayout(cfg *config.Plugin, a Adapters) driver.SavedLayout {
	return driver.LayoutFile{Disk: a.Disk, Dir: cfg.PluginDir()}
}

// begin finds out what to advertise, as far as that is quick, and publishes it: after a look at what else allocates the GPUs.
func (l *layout) begin(ctx context.Context, read driver.AtStart) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	l.offering.Begin(reading, read)
	l.offering.Probe(reading)
	l.conflicts.Look(ctx)
	l.publisher.Publish()
}

// firstRead is how long the start waits for the node's configuration; it is read again in the background.
const firstRead = time.Second

// dropped is told that the API server has stored a ResourceSlice without some of its fields.
func (l *layout) dropped(ctx context.Context, d kube.DroppedFields) {
	klog.FromContext(ctx).Info("The API server stored a ResourceSlice without some fields: turn the features on",
		"pool", d.Pool, "slice", d.Slice, "features", d.Features)
	if d.Counters() {
		l.offering.Disjoin()
		l.publisher.Renew()
	}
	if d.Taints() {
		l.offering.Untaint()
		l.publisher.Untaint()
	}
	l.events.Warn("FieldsDropped", "Publish", fmt.Sprintf("The API server leaves out parts of the ResourceSlices of pool %s: "+
		"turn on %s", d.Pool, strings.Join(d.Features, ", ")))
}

// publish keeps the ResourceSlices until the context ends. One process of a node does at a time.
func (l *layout) publish(ctx context.Context) error {
	return l.slices.Run(ctx, func(d kube.DroppedFields) { l.dropped(ctx, d) })
}
