package plugin

import (
	"context"

	"github.com/prism-gpu/prism/pkg/config"
	maintained "github.com/prism-gpu/prism/pkg/maintenance"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

// nodeWatch follows the node's own Node: the label that selects the node's configuration, and annotations and conditions for maintenance.
// One watch has all of them.
type nodeWatch struct {
	watch kube.NodeWatch
	// reload reads the node's configuration again.
	reload func()
	// maintenance is nil if annotations and conditions are not followed.
	maintenance *Maintenance
}

func newNodeWatch(cfg *config.Plugin, api API, l *nodeLayout, m *Maintenance) *nodeWatch {
	w := &nodeWatch{watch: kube.NodeWatch{Client: api.Background, NodeName: cfg.NodeName}, reload: l.Controller.Reload, maintenance: m}
	if cfg.NodeConfig.File == "" && cfg.NodeConfig.Map != "" {
		w.watch.Label = cfg.NodeConfig.Label
	}
	if m != nil {
		w.watch.Domains, w.watch.Conditions = maintained.Domains(cfg.DriverName), m.conditions
	}
	return w
}

// run watches until the context ends.
func (w *nodeWatch) run(ctx context.Context) error {
	if w.watch.Label == "" && w.maintenance == nil {
		return nil
	}
	label, read := "", false
	return w.watch.Run(ctx, func(now kube.NodeParts) {
		if w.maintenance != nil {
			w.maintenance.node(&now)
		}
		if w.watch.Label != "" && (!read || label != now.Label) {
			w.reload()
		}
		label, read = now.Label, true
	})
}

// parts are the functions that run until the context ends.
func (w *nodeWatch) parts() []func(context.Context) error {
	parts := []func(context.Context) error{w.run}
	if w.maintenance != nil {
		parts = append(parts, w.maintenance.parts()...)
	}
	return parts
}
