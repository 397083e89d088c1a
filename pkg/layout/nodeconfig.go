package layout

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/events"
)

// configuration is what is known of a node's configuration.
type configuration struct {
	// last is the last valid one, nil where there is none for the node; known: there was a valid one since the start.
	last  *v1alpha1.NodeConfig
	known bool
	// before: there is a layout from before the start.
	before bool
	// unread is why nothing is known that could be advertised.
	unread error
	reading
	notices *notices
}

// reading is how the last tries to read a configuration went.
type reading struct {
	// valid: it was read; fits: these GPUs can have what it says; passing: it could not be read for a reason that may go away by itself;
	// stale: it may be another one by now.
	valid, fits, passing, stale bool
	// failures counts the tries that passed in vain.
	failures int
	retry    backoff.Backoff
}

func newConfiguration(node string, n *notices) *configuration {
	return &configuration{
		unread: fmt.Errorf("the configuration of node %s was not read yet", node), notices: n,
		reading: reading{retry: backoff.Backoff{First: retryFirst, Max: retryMax}},
	}
}

// take takes what was read, or why nothing was. Of a configuration that is invalid the last valid one stays, over a restart the layout of
// before; of one that cannot be read too, after some tries.
func (c *configuration) take(ctx context.Context, from ConfigPorts, config *v1alpha1.NodeConfig, err error) {
	c.passing = false
	switch {
	case err == nil:
		c.last, c.known, c.unread, c.failures = config, true, nil, 0
		c.notices.valid(sideText)
	case from.Retryable(err):
		c.passing = true
		if !c.known && c.unread != nil {
			c.unread = err
		}
		klog.FromContext(ctx).Error(err, "The node's configuration was not read yet")
		if c.failures++; c.failures >= retryBudget {
			if c.before {
				c.unread = nil
			}
			c.notices.invalid(sideText, events.NodeConfigUnavailable, fmt.Sprintf("%s: %v", c.stays("No change of the layout is published"), err))
		}
	default:
		c.unread = nil
		c.notices.invalid(sideText, events.NodeConfigInvalid, fmt.Sprintf("%s: %v", c.stays("GPUs are advertised whole"), err))
	}
	c.valid, c.fits = err == nil, true
}

// stays says what is advertised while the configuration is not known: the last that is known, or else what is passed in.
func (c *configuration) stays(otherwise string) string {
	switch {
	case c.known:
		return "The configuration that was read before stays"
	case c.before:
		return "GPUs are advertised as before this start"
	default:
		return otherwise
	}
}

// retries reports whether only another try shows what the configuration is. One that is invalid waits for another text where that is watched,
// and for other GPUs, for which it need not be read.
func (c *configuration) retries(watched bool) bool {
	return c.passing || !watched && (!c.valid || !c.fits)
}

// again reports whether to read the configuration again now.
func (c *configuration) again(now time.Time, watched bool) bool {
	if !c.retries(watched) {
		c.retry.Reset()
		return false
	}
	if !c.retry.Due(now) {
		return false
	}
	c.retry.Defer(now)
	return true
}

// flags are the settings in the last valid configuration, which were saved where it is from before the start; nil where it has none.
func (c *configuration) flags(saved *v1alpha1.NodeFlags) *v1alpha1.NodeFlags {
	switch {
	case !c.known:
		return saved
	case c.last == nil:
		return nil
	default:
		return c.last.Flags
	}
}

// reread reads the configuration where it may be another one by now, or where the last try says that this one is not all that will be known.
func (w *worker) reread(ctx context.Context) {
	c := w.state.config
	if due := c.again(time.Now(), w.ports.Config.Watched); !c.stale && !due {
		return
	}
	if c.stale {
		_, _ = call(ctx, w, func(ctx context.Context) (struct{}, error) {
			select {
			case <-ctx.Done():
			case <-time.After(debounce):
			}
			return struct{}{}, nil
		})
		c.stale = false
		c.retry.Reset()
		w.state.rollout.changes.checkNow()
	}
	config, err := call(ctx, w, w.ports.Config.Read)
	c.take(ctx, w.ports.Config, config, err)
	w.output.stale = true
}
