package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Cluster is what a layout asks the API server.
type Cluster interface {
	// PartitionableDevices and DeviceTaints report whether the API server stores shared counters and taints, CountsShares whether the
	// scheduler counts the shares of a device together with other devices of the GPU.
	PartitionableDevices(ctx context.Context) (bool, error)
	DeviceTaints(ctx context.Context) (bool, error)
	CountsShares(ctx context.Context) (bool, error)
	// Tainted lists the node's published devices, and of each whether it is tainted as leaving.
	Tainted(ctx context.Context) (map[gpu.PoolDevice]bool, error)
	// Allocated reads a page of the cluster's claims; the Driver of the query is empty.
	Allocated(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error)
}

// LayoutPorts are what a layout works with besides the machine.
type LayoutPorts struct {
	Cluster Cluster
	// Read returns the node's configuration, nil where it has none; Passing reports whether its error may go away by itself.
	Read    func(ctx context.Context) (*v1alpha1.NodeConfig, error)
	Passing func(err error) bool
	// Slices is what ResourceSlices are published with.
	Slices interface {
		Publish(resources resourceslice.DriverResources)
	}
	Events driver.NodeEvents
}

// Layout decides what the GPUs are advertised as.
type Layout struct {
	Offering  *driver.Offering
	Publisher *driver.Publisher
	Conflicts *driver.Conflicts
}

// NewLayout builds it; nothing is known, and nothing is published, before Begin.
func NewLayout(cfg *config.Plugin, m *Machine, ports LayoutPorts) *Layout {
	offering := driver.NewOffering(driver.OfferingPorts{
		Inventory: m.Inventory, NodeName: cfg.NodeName, Events: ports.Events, Records: m.Kept, Read: ports.Read, Passing: ports.Passing,
		Counters: ports.Cluster.PartitionableDevices, Shares: ports.Cluster.CountsShares,
		// A file may be on a filesystem that does not tell what others write, so a bad one is read again now and then.
		Watched: cfg.NodeConfig.File == "",
		Tainted: ports.Cluster.Tainted, Allocated: ports.Cluster.Allocated, Saved: savedLayout(cfg, m.adapters),
	})
	publisher := driver.NewPublisher(offering, published(cfg), ports.Slices)
	return &Layout{Offering: offering, Publisher: publisher, Conflicts: &driver.Conflicts{
		Sockets: m.adapters.Host.Sockets, KubeletPlugins: cfg.Paths.KubeletPlugins, DriverName: cfg.DriverName, Set: publisher.Conflict,
		Events: ports.Events, Taints: ports.Cluster.DeviceTaints,
	}}
}

// Bind has a transaction report what keeps GPUs from new claims, and refuse claims while the GPUs are withheld.
func (l *Layout) Bind(settings *prepare.Settings) {
	settings.Owing, settings.Withheld = l.Publisher.Owe, l.Conflicts.Withheld
}

// Begin finds out what to advertise, as far as that is quick, and publishes it: after a look at what else allocates the GPUs.
func (l *Layout) Begin(ctx context.Context, read driver.AtStart) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	l.Offering.Begin(reading, read)
	l.Offering.Probe(reading)
	l.Conflicts.Look(ctx)
	l.Publisher.Publish()
}

// layout is a Layout with the node's configuration and the ResourceSlices that the API server has.
type layout struct {
	*Layout
	config *configSource
	slices *kube.Slices
	events driver.NodeEvents
}

func newLayout(ctx context.Context, cfg *config.Plugin, m *Machine, source *configSource, api API) *layout {
	slices := kube.NewSlices(kube.SlicesOptions{
		Client: api.Background, DriverName: cfg.DriverName, NodeName: cfg.NodeName,
		OnError: func(err error) { klog.FromContext(ctx).Error(err, "ResourceSlices are not published yet") },
	})
	return &layout{config: source, slices: slices, events: api.Events, Layout: NewLayout(cfg, m, LayoutPorts{
		Cluster: api.cluster(cfg), Read: source.read, Passing: passing, Slices: slices, Events: api.Events,
	})}
}

// published says for whom ResourceSlices are, and what they have besides what the GPUs are advertised as.
func published(cfg *config.Plugin) publish.Options {
	return publish.Options{DriverName: cfg.DriverName, NodeName: cfg.NodeName, Monitor: cfg.MonitorDevices == config.MonitorPerNode}
}

func savedLayout(cfg *config.Plugin, a Adapters) driver.SavedLayout {
	return driver.LayoutFile{Disk: a.Disk, Dir: cfg.PluginDir()}
}

// firstRead is how long the start waits for the node's configuration; it is read again in the background.
const firstRead = time.Second

// dropped is told that the API server has stored a ResourceSlice without some of its fields.
func (l *layout) dropped(ctx context.Context, d kube.DroppedFields) {
	klog.FromContext(ctx).Info("The API server stored a ResourceSlice without some fields: turn the features on",
		"pool", d.Pool, "slice", d.Slice, "features", d.Features)
	if d.Counters() {
		l.Offering.Disjoin()
		l.Publisher.Renew()
	}
	if d.Taints() {
		l.Offering.Untaint()
		l.Publisher.Untaint()
	}
	l.events.Warn(events.ResourceSliceFieldsDropped, events.ActionPublish, fmt.Sprintf("The API server leaves out parts of the ResourceSlices of pool %s: "+
		"turn on %s", d.Pool, strings.Join(d.Features, ", ")))
}

// publish keeps the ResourceSlices until the context ends. One process of a node does at a time.
func (l *layout) publish(ctx context.Context) error {
	return l.slices.Run(ctx, func(d kube.DroppedFields) { l.dropped(ctx, d) })
}
