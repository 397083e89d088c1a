package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/health"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
	"github.com/prism-gpu/prism/pkg/plugin/layout/configsource"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// Cluster asks the API server for a layout.
type Cluster interface {
	// PartitionableDevices and DeviceTaints report whether the API server stores shared counters and taints, CountsShares whether the
	// scheduler counts the shares of a device together with other devices of the GPU.
	PartitionableDevices(ctx context.Context) (bool, error)
	DeviceTaints(ctx context.Context) (bool, error)
	CountsShares(ctx context.Context) (bool, error)
	// Tainted lists the node's published devices, and of each whether it is tainted as leaving.
	Tainted(ctx context.Context) (map[gpu.PoolDevice]bool, error)
	// Allocated reads a page of the cluster's claims; an empty Driver of the query is this one.
	Allocated(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error)
}

// layoutPorts are the ports of a layout besides the machine.
type layoutPorts struct {
	Cluster Cluster
	// Config is the node's configuration.
	Config layout.ConfigPorts
	// Slices publishes ResourceSlices.
	Slices layout.ResourceSlices
	Events events.Recorder
}

// Layout decides as which devices the GPUs are advertised.
type Layout struct {
	Controller *layout.Controller
	Publisher  *layout.Publisher
	Conflicts  *health.Conflicts
	former     *formerNames
	failed     *failedDevices
}

// buildLayout builds it; nothing is known, and nothing is published, before Begin.
func buildLayout(cfg *config.Plugin, m *Machine, ports layoutPorts) *Layout {
	cluster := ports.Cluster
	families, options := m.families(), published(cfg)
	options.Families = families.publish()
	l := &Layout{former: m.State.former}
	l.failed = newFailedDevices(func(rules []publish.TaintRule) { l.Publisher.SetTaints(layout.Failed, rules) })
	controller := layout.New(layout.Options{
		NodeName: cfg.NodeName, Inventory: m.Inventory, Config: ports.Config, Records: m.records, Store: layoutStore(cfg, m.adapters), Events: ports.Events,
		Modes: families.modes(),
		API: layout.APIPorts{
			PartitionableDevices: cluster.PartitionableDevices, CountsShares: cluster.CountsShares, DeviceTaints: cluster.DeviceTaints,
			Tainted: cluster.Tainted, Allocated: cluster.Allocated, Probed: func(taints bool) {
				l.Publisher.TaintsStored(taints)
				l.Publisher.Renew() // fields that an earlier version dropped are written again
			},
		},
	})
	l.Controller, l.Publisher = controller, layout.NewPublisher(controller, options, ports.Slices)
	l.Conflicts = &health.Conflicts{
		Sockets: m.adapters.Host.Sockets, KubeletPlugins: cfg.Paths.KubeletPlugins, DriverName: cfg.DriverName, Former: l.former.has, Set: l.conflict,
		Events: ports.Events, Taints: cluster.DeviceTaints,
	}
	return l
}

// setAvailability sets whether new claims may get devices of a type.
func (l *Layout) setAvailability(device gpu.DeviceType, availability extension.Availability) {
	publishAvailability(l.Publisher, device, availability)
}

// setBusy keeps new claims from the devices of a type of GPUs whose hardware another program uses.
func (l *Layout) setBusy(device gpu.DeviceType, gpus []gpu.UUID) {
	l.Publisher.SetTaints(layout.Busy, publish.BusyTaints(device, gpus))
}

// advertiser publishes devices with taints, and may do so between two calls.
type advertiser interface {
	Withhold(t gpu.DeviceType, withheld bool)
	SetTaints(source layout.TaintSource, rules []publish.TaintRule)
}

func publishAvailability(to advertiser, device gpu.DeviceType, availability extension.Availability) {
	if availability == extension.Unknown { // first, so that no device is published without its taint
		to.Withhold(device, true)
	}
	var rules []publish.TaintRule
	if availability != extension.Available {
		rules = publish.UnavailableTaints(device)
	}
	to.SetTaints(layout.Service, rules)
	if availability != extension.Unknown {
		to.Withhold(device, false)
	}
}

// conflict keeps new claims from all devices while another component allocates the GPUs: by taints if the API server stores them, else by
// withdrawing the devices. The start of a conflict sets whether taints are stored, and its end does not unset it: devices that are tainted
// for another reason must not be published by a server that drops their taints.
func (l *Layout) conflict(with publish.Conflict, taints bool) {
	if with != "" || taints {
		l.Publisher.TaintsStored(taints)
	}
	l.Publisher.SetTaints(layout.Conflict, publish.ConflictTaints(with))
}

// Bind makes a transaction report the pending cleanups, which keep GPUs from new claims, and refuse claims while the GPUs are withheld.
func (l *Layout) Bind(options *prepare.Options) {
	options.PendingCleanups = func(pending []gpu.PendingCleanup) {
		l.Publisher.SetTaints(layout.Cleanup, publish.CleanupTaints(pending))
	}
	options.Withheld = func() error { return cmp.Or(l.former.withheld(), l.Conflicts.Withheld()) }
}

// Begin decides which devices to advertise, as far as that is quick, and publishes them. Before, it checks for other components that
// allocate the GPUs, and runs the checks for other reasons that keep new claims from the devices.
func (l *Layout) Begin(ctx context.Context, read layout.AtStart, checks ...func(context.Context)) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	l.Controller.Begin(reading, read)
	l.Conflicts.Check(ctx)
	for _, check := range checks {
		check(ctx)
	}
	l.Publisher.Publish()
}

// Now returns the node and the layout of its GPUs. It never waits.
func (l *Layout) Now() (*gpu.Node, gpu.Layout, error) {
	s := l.Controller.Snapshot()
	return s.Node, s.Layout, s.Err
}

// Standby reports whether another process may advertise another layout.
func (l *Layout) Standby() bool { return l.Controller.Snapshot().Standby }

// Flags are the settings of the node's configuration; nil if it contains none.
func (l *Layout) Flags() *v1alpha1.NodeFlags { return l.Controller.Snapshot().Flags }

// Intervals returns the time-slice interval of every GPU that has one.
func (l *Layout) Intervals() (map[gpu.UUID]gpu.Interval, error) {
	return l.Controller.Snapshot().Intervals()
}

// Lead lets layouts change, and publishes the last layout of the process before this one. Only the process that leads calls it.
func (l *Layout) Lead() {
	l.Controller.Lead(true)
	l.Publisher.Publish()
}

// nodeLayout is a Layout with the node's configuration and the ResourceSlices that the API server has.
type nodeLayout struct {
	*Layout
	config *configsource.Source
	slices ResourceSlices
	events events.Recorder
	// lost receives a value after a connection to the API server was lost; nil: never.
	lost <-chan struct{}
	// health knows the findings, which the process that leads stores before it publishes.
	health *health.Monitor
}

func newLayout(cfg *config.Plugin, m *Machine, source *configsource.Source, api API) *nodeLayout {
	return &nodeLayout{config: source, slices: api.Slices, events: api.Events, lost: api.Lost, health: m.Health, Layout: buildLayout(cfg, m, layoutPorts{
		Cluster: api.Cluster, Slices: api.Slices, Events: api.Events,
		// A file may be on a filesystem that does not report writes of others, so an invalid one is read again now and then.
		Config: layout.ConfigPorts{Read: source.Read, Retryable: configsource.Retryable, Watched: cfg.NodeConfig.File == ""},
	})}
}

// published returns the node of the ResourceSlices, and their devices besides GPUs.
func published(cfg *config.Plugin) publish.Options {
	return publish.Options{DriverName: cfg.DriverName, NodeName: cfg.NodeName, Additional: gpu.Additional{
		Monitor: cfg.MonitorDevices == config.MonitorPerNode, Perfmon: cfg.PerfmonDevices == config.PerfmonPerGPU,
	}}
}

func layoutStore(cfg *config.Plugin, a Adapters) layout.Store {
	return layout.File{Disk: a.Disk, Dir: cfg.PluginDir()}
}

// startConfig reads the node's configuration, and returns the settings of the process with the settings in it.
func startConfig(ctx context.Context, cfg *config.Plugin, a Adapters, api API) (*configsource.Source, *config.Plugin, layout.AtStart) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	return configsource.Open(reading, configsource.Options{
		Config: cfg, API: kube.Configs{Client: api.Background}, Saved: layoutStore(cfg, a), Events: api.Events,
	})
}

// firstRead is how long the start waits for the node's configuration; it is read again in the background.
const firstRead = time.Second

// dropped is called when the API server has stored a ResourceSlice without some of its fields.
func (l *nodeLayout) dropped(ctx context.Context, d kube.DroppedFields) {
	klog.FromContext(ctx).Info("The API server stored a ResourceSlice without some fields: turn the features on",
		"pool", d.Pool, "slice", d.Slice, "features", d.Features)
	l.Controller.FieldsDropped()
	if d.Counters() {
		l.Controller.CountersUnsupported()
	}
	if d.Taints() {
		l.Controller.TaintsUnsupported()
		l.Publisher.TaintsStored(false)
	}
	l.events.Warn(events.ResourceSliceFieldsDropped, events.ActionPublish, fmt.Sprintf("The API server drops fields of the ResourceSlices of pool %s: "+
		"turn on %s", d.Pool, strings.Join(d.Features, ", ")))
}

// probeAgain has features probed again after connections to the API server were lost, until the context ends.
func (l *nodeLayout) probeAgain(ctx context.Context) {
	for {
		select {
		case <-l.lost:
			l.Controller.ConnectionLost()
		case <-ctx.Done():
			return
		}
	}
}

// publish keeps the ResourceSlices until the context ends. One process of a node does at a time.
func (l *nodeLayout) publish(ctx context.Context) error {
	return l.slices.Run(ctx, func(d kube.DroppedFields) { l.dropped(ctx, d) })
}
