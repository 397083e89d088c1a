package configsource

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
)

// Options are the settings and the ports of Open.
type Options struct {
	Config *config.Plugin
	// API is read if the configuration is in a ConfigMap.
	API kube.Configs
	// Saved holds the settings of the last good configuration, for a start at which it cannot be read.
	Saved layout.Store
	// Events are about the node.
	Events events.Recorder
}

// Source is the node's configuration for a process that has started, and reports changes that need another start.
type Source struct {
	reader
	events events.Recorder
	// follows: the driver's root comes from the node's configuration, not from a flag. The process was started with root.
	follows bool
	root    string

	mu   sync.Mutex
	said *string // the other root that was reported last, nil while there is none
}

// Open reads the node's configuration, as long as the context allows, and returns its source, and the settings of the process completed by
// the configuration's settings.
func Open(ctx context.Context, o Options) (*Source, *config.Plugin, layout.AtStart) {
	cfg := o.Config
	s := &Source{reader: reader{from: cfg.NodeConfig, nodeName: cfg.NodeName, api: o.API}, events: o.Events, follows: cfg.Driver.Root == ""}
	var read layout.AtStart
	read.Config, read.ConfigErr = s.read(ctx)
	with := withFlags(cfg, read, o.Saved)
	s.root = with.Driver.Root
	return s, with, read
}

// withFlags adds the settings of the node's configuration that are set neither by a flag nor by the environment nor by the process's own
// file. If the configuration could not be read, it adds the settings of the last good one.
func withFlags(cfg *config.Plugin, read layout.AtStart, saved layout.Store) *config.Plugin {
	flags := &v1alpha1.NodeFlags{}
	if read.ConfigErr != nil {
		if saved, err := saved.Load(); err == nil && saved.Flags != nil { // else the layout reports it
			flags = saved.Flags
		}
	} else if read.Config != nil && read.Config.Flags != nil {
		flags = read.Config.Flags
	}
	with := *cfg
	if with.Driver.Root == "" && flags.NVIDIADriverRoot != nil {
		with.Driver.Root = *flags.NVIDIADriverRoot
	}
	if with.Driver.FailOnInitError == nil {
		with.Driver.FailOnInitError = flags.FailOnInitError
	}
	return &with
}

// Read returns the node's configuration, nil if there is none.
func (s *Source) Read(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	config, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if note := s.otherRoot(config); note != "" {
		klog.FromContext(ctx).Info("The node's configuration is not in force", "reason", note)
		s.events.Warn(events.RestartRequired, events.ActionConfigure, note)
	}
	return config, nil
}

// otherRoot returns a message if a configuration names another root of the driver than the one taken at start, which stays for the life of
// the process. The message is empty if the root is the same, or if it was reported already.
func (s *Source) otherRoot(config *v1alpha1.NodeConfig) string {
	root := ""
	if config != nil && config.Flags != nil && config.Flags.NVIDIADriverRoot != nil {
		root = *config.Flags.NVIDIADriverRoot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.follows || root == s.root {
		s.said = nil
		return ""
	}
	if s.said != nil && *s.said == root {
		return ""
	}
	s.said = &root
	return fmt.Sprintf("The node's configuration has nvidiaDriverRoot %q, and the plugin was started with %q: delete the plugin's pod on this node, "+
		"so that it is started with the other one", root, s.root)
}
