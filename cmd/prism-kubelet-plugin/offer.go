package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/driver"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/publish"
)

// offer builds what decides what the node's GPUs are offered as.
func (p *program) offer(clients connections) *driver.Offering {
	return driver.NewOffering(driver.OfferingPorts{
		Inventory: p.inventory, NodeName: p.cfg.NodeName, Events: p.events,
		Counters: func(ctx context.Context) (bool, error) { return p.probe(clients).PartitionableDevices(ctx) },
		Shares:   func(ctx context.Context) (bool, error) { return p.probe(clients).CountsShares(ctx) },
		Records:  p.records,
		Read:     func(ctx context.Context) (*v1alpha1.NodeConfig, error) { return p.nodeConfig(ctx, clients) },
		Passing:  passing,
		// A file may be on a filesystem that does not tell what others write, so a bad one is read again now and then.
		Watched: p.cfg.NodeConfig.File == "",
		Tainted: func(ctx context.Context) (map[gpu.PoolDevice]bool, error) { return p.tainted(ctx, clients) },
		Allocated: func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error) {
			query.Driver = p.cfg.DriverName
			return kube.Claims{Client: clients.background}.Allocated(ctx, query)
		},
		Saved: p.savedLayout(),
	})
}

// tainted lists what the API server has of this node's devices, and of each whether it is tainted as leaving.
func (p *program) tainted(ctx context.Context, clients connections) (map[gpu.PoolDevice]bool, error) {
	stored := kube.Stored{Client: clients.background, DriverName: p.cfg.DriverName, NodeName: p.cfg.NodeName}
	return stored.Tainted(ctx, p.cfg.DriverName+"/"+publish.LeavingTaint)
}

// watchConfig tells when what the configuration is read from may have changed.
func (p *program) watchConfig(clients connections, changed func()) func(context.Context) error {
	from := p.cfg.NodeConfig
	if from.File != "" {
		return func(ctx context.Context) error {
			disk.Watch(ctx, from.File, changed, func(err error) {
				klog.FromContext(ctx).Error(err, "The node's configuration is read every few seconds")
			})
			return nil
		}
	}
	namespace, name, inMap := strings.Cut(from.Map, "/")
	if !inMap {
		return func(context.Context) error { return nil }
	}
	watch := kube.ConfigWatch{Client: clients.background, NodeName: p.cfg.NodeName, Label: from.Label, Namespace: namespace, Map: name}
	return func(ctx context.Context) error { return watch.Run(ctx, changed) }
}

// lookForConflicts looks for what else hands out the GPUs, before anything is published.
func (p *program) lookForConflicts(ctx context.Context, host plugin.Host, clients connections) {
	p.conflicts = &driver.Conflicts{
		Sockets: host.Sockets, KubeletPlugins: p.cfg.Paths.KubeletPlugins, DriverName: p.cfg.DriverName, Set: p.publisher.Conflict,
		Events: p.events, Taints: func(ctx context.Context) (bool, error) { return p.probe(clients).DeviceTaints(ctx) },
	}
	p.conflicts.Look(ctx)
	p.publisher.Publish()
}

// passing tells whether the configuration could not be read for a reason of the moment. An API server that has just started forbids
// everything.
func passing(err error) bool {
	_, read := errors.AsType[*readError](err)
	return !read
}

func (p *program) probe(clients connections) kube.Probe {
	return kube.Probe{Client: clients.background, DriverName: p.cfg.DriverName, NodeName: p.cfg.NodeName}
}

// records returns this node's records: at first, and once, those that the transaction has just read.
func (p *program) records() ([]*checkpoint.Record, error) {
	if found := p.found.Swap(nil); found != nil {
		return *found, nil
	}
	return p.tx.Kept()
}

// readError is about the text of the configuration.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// firstConfig is what was read at start.
type firstConfig struct {
	config *v1alpha1.NodeConfig
	err    error
}

// applyFlags reads the node's configuration first of all, for the settings of the process that it has: those that neither a flag nor the
// environment nor the process's own file has set. Where it cannot be had, those of the last good one are taken.
func (p *program) applyFlags(ctx context.Context, clients connections) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	config, err := p.nodeConfig(reading, clients)
	p.first.Store(&firstConfig{config: config, err: err})
	flags := &v1alpha1.NodeFlags{}
	if err != nil {
		if saved, err := p.savedLayout().Load(); err == nil && saved.Flags != nil { // else the offering tells of it
			flags = saved.Flags
		}
	} else if config != nil && config.Flags != nil {
		flags = config.Flags
	}
	if p.rootFollows = p.cfg.Driver.Root == ""; p.rootFollows && flags.NVIDIADriverRoot != nil {
		p.cfg.Driver.Root = *flags.NVIDIADriverRoot
	}
	if p.cfg.Driver.FailOnInitError == nil {
		p.cfg.Driver.FailOnInitError = flags.FailOnInitError
	}
}

// rootKey is what is noted of warnings about the driver's root.
const rootKey = "flags.nvidiaDriverRoot"

// restartNeeded says that a configuration has another root of the driver than the one that was taken at start, which stays as long as the
// process; empty where it has not, or where that is said already.
func (p *program) restartNeeded(config *v1alpha1.NodeConfig) string {
	root := ""
	if config != nil && config.Flags != nil && config.Flags.NVIDIADriverRoot != nil {
		root = *config.Flags.NVIDIADriverRoot
	}
	if !p.rootFollows || root == p.cfg.Driver.Root {
		p.warned.Delete(rootKey)
		return ""
	}
	if said, _ := p.warned.Swap(rootKey, root); said == root {
		return ""
	}
	return fmt.Sprintf("The node's configuration has nvidiaDriverRoot %q, and the plugin was started with %q: delete the plugin's pod on this node, "+
		"so that it is started with the other one", root, p.cfg.Driver.Root)
}

func (p *program) savedLayout() driver.SavedLayout {
	return driver.LayoutFile{Disk: disk.OS{}, Dir: p.cfg.PluginDir()}
}

// firstOffer finds out what to offer, as far as that is quick.
func (p *program) firstOffer(ctx context.Context) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	p.offering.Load(reading)
	p.offering.Probe(reading)
}

// nodeConfig reads the node's configuration, nil where there is none, and says once what of it has no effect. What was read at start is
// the answer to the first question.
func (p *program) nodeConfig(ctx context.Context, clients connections) (*v1alpha1.NodeConfig, error) {
	if first := p.first.Swap(nil); first != nil {
		return first.config, first.err
	}
	config, warnings, err := p.readNodeConfig(ctx, clients)
	for _, warning := range warnings {
		if _, said := p.warned.LoadOrStore(warning, true); !said {
			klog.FromContext(ctx).Info("A key of the node's configuration has no effect", "key", warning.Path, "reason", warning.Text)
		}
	}
	if err == nil {
		if note := p.restartNeeded(config); note != "" {
			klog.FromContext(ctx).Info("The node's configuration is not in force", "reason", note)
			p.events.Warn("RestartNeeded", "Configure", note)
		}
	}
	return config, err
}

func (p *program) readNodeConfig(ctx context.Context, clients connections) (*v1alpha1.NodeConfig, []nodeconfig.Warning, error) {
	from := p.cfg.NodeConfig
	switch {
	case from.File != "":
		raw, err := os.ReadFile(from.File)
		if err != nil {
			return nil, nil, &readError{fmt.Errorf("--node-config: %w", err)}
		}
		config, warnings, err := nodeconfig.Parse(raw, "file "+from.File)
		return config, warnings, refused(err)
	case from.Map != "":
		config, warnings, err := p.readMap(ctx, kube.Configs{Client: clients.background})
		if err != nil {
			return nil, nil, fmt.Errorf("ConfigMap %s: %w", from.Map, err)
		}
		return config, warnings, nil
	default:
		return nil, nil, nil
	}
}

// readMap reads the ConfigMap's document for this node.
func (p *program) readMap(ctx context.Context, configs kube.Configs) (*v1alpha1.NodeConfig, []nodeconfig.Warning, error) {
	from := p.cfg.NodeConfig
	namespace, name, _ := strings.Cut(from.Map, "/")
	data, err := configs.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil, refused(err)
	}
	if err != nil {
		return nil, nil, err
	}
	choice := nodeconfig.Choice{LabelKey: from.Label, Default: from.Name}
	for _, fallback := range from.Fallbacks {
		choice.Fallbacks = append(choice.Fallbacks, nodeconfig.Fallback(fallback))
	}
	if from.Label != "" {
		if choice.Label, err = configs.Label(ctx, p.cfg.NodeName, from.Label); err != nil {
			return nil, nil, err
		}
	}
	config, warnings, err := nodeconfig.Pick(data, choice)
	return config, warnings, refused(err)
}

func refused(err error) error {
	if err == nil {
		return nil
	}
	return &readError{err}
}
