package driver

import (
	"context"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// AtStart is what a process has read while it started, so that it is not read twice.
type AtStart struct {
	// Config is the node's configuration, or ConfigErr why it could not be read.
	Config    *v1alpha1.NodeConfig
	ConfigErr error
	// Records are the node's, nil where they could not be read.
	Records []*checkpoint.Record
}

// Begin is the first Load: it takes what was read at the start. No claim may come or go before it returns.
func (o *Offering) Begin(ctx context.Context, read AtStart) {
	o.take(ctx, read.Config, read.ConfigErr)
	view := o.ports.Inventory.Current()
	o.mu.Lock()
	defer o.mu.Unlock()
	if read.Records != nil && o.config.unread == nil {
		_ = o.resolveWith(view, read.Records) // who asks for the layout gets the error
	}
}
