package plugin

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/layout"
)

// startConfig reads the node's configuration, and returns the settings of the process with those that it has.
func startConfig(ctx context.Context, cfg *config.Plugin, a Adapters, api API) (*configSource, *config.Plugin, layout.AtStart) {
	reader := &configReader{from: cfg.NodeConfig, nodeName: cfg.NodeName, client: api.Background}
	read := readAtStart(ctx, reader)
	with := withFlags(cfg, read, layoutStore(cfg, a))
	return &configSource{configReader: reader, events: api.Events, follows: cfg.Driver.Root == "", root: with.Driver.Root}, with, read
}

// readAtStart reads the node's configuration first of all, for the settings of the process that it has.
func readAtStart(ctx context.Context, reader *configReader) (read layout.AtStart) {
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	read.Config, read.ConfigErr = reader.read(reading)
	return read
}

// withFlags returns the settings with those of the node's configuration that neither a flag nor the environment nor the process's own file
// has set. Where it could not be read, those of the last good one are taken.
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

// configSource is the node's configuration for a process that has started, and reports what of it needs another start.
type configSource struct {
	*configReader
	events events.Recorder
	// follows: the driver's root is what the node's configuration says, not a flag. The process was started with root.
	follows bool
	root    string

	mu   sync.Mutex
	said *string // the other root that was reported last, nil while there is none
}

// read returns the node's configuration, nil where there is none.
func (s *configSource) read(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	config, err := s.configReader.read(ctx)
	if err != nil {
		return nil, err
	}
	if note := s.otherRoot(config); note != "" {
		klog.FromContext(ctx).Info("The node's configuration is not in force", "reason", note)
		s.events.Warn(events.RestartRequired, events.ActionConfigure, note)
	}
	return config, nil
}

// otherRoot says that a configuration has another root of the driver than the one that was taken at start, which stays as long as the
// process; empty where it has not, or where that is said already.
func (s *configSource) otherRoot(config *v1alpha1.NodeConfig) string {
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
