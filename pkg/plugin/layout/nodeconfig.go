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

// configuration is a node's configuration as far as it was read.
type configuration struct {
	// last is the last valid configuration, nil if the node has none; known: a valid one was read since the start.
	last  *v1alpha1.NodeConfig
	known bool
	// before: there is a layout from before the start.
	before bool
	// unread is the reason why there is no configuration to advertise GPUs by.
	unread error
	result readResult
	// failures counts the reads in a row that failed for a transient reason.
	failures int
	rereads  rereads
	notices  *notices
}

// readResult is the result of the last read.
type readResult struct {
	// valid: it was read; fits: these GPUs support it; passing: it could not be read for a transient reason.
	valid, fits, passing bool
}

// rereads decides when a configuration is read again: after a change, and while it is not known.
type rereads struct {
	// wait is the time until a change is read.
	wait time.Duration
	// stale: it may have changed since the last read, and is read again when it is due.
	stale bool
	due   time.Time
	retry backoff.Backoff
}

func newConfiguration(node string, n *notices) *configuration {
	return &configuration{
		unread: fmt.Errorf("the configuration of node %s was not read yet", node), notices: n,
		rereads: rereads{wait: debounce + phase(node, pageInterval), retry: backoff.Backoff{First: retryFirst, Max: retryMax}},
	}
}

// take applies a configuration that was read, or the error of reading it. If it is invalid the last valid one stays, over a restart the
// layout from before; also if it cannot be read, after some tries.
func (c *configuration) take(ctx context.Context, from ConfigPorts, config *v1alpha1.NodeConfig, err error) {
	c.result.passing = false
	switch {
	case err == nil:
		c.last, c.known, c.unread, c.failures = config, true, nil, 0
		c.notices.valid(sideText)
	case from.Retryable(err):
		c.result.passing = true
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
	c.result.valid, c.result.fits = err == nil, true
}

// stays describes the advertised layout while the configuration is not known: by the last known one, or else as passed in.
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

// changed requests another read of the configuration after the wait; that read also covers further changes until then.
func (r *rereads) changed(now time.Time) {
	if !r.stale {
		r.stale, r.due = true, now.Add(r.wait)
	}
}

// retries reports whether the configuration has to be read again to be known. An invalid one waits for another text, if that is watched, or
// for other GPUs, which do not require reading it again.
func (c *configuration) retries(watched bool) bool {
	return c.result.passing || !watched && (!c.result.valid || !c.result.fits)
}

// again reports whether to read the configuration again now.
func (c *configuration) again(now time.Time, watched bool) bool {
	if !c.retries(watched) {
		c.rereads.retry.Reset()
		return false
	}
	if !c.rereads.retry.Due(now) {
		return false
	}
	c.rereads.retry.Defer(now)
	return true
}

// pause is the time until the configuration is read again, at most the passed one.
func (c *configuration) pause(now time.Time, watched bool, most time.Duration) time.Duration {
	if c.rereads.stale {
		most = min(most, c.rereads.due.Sub(now))
	}
	if c.retries(watched) {
		most = min(most, c.rereads.retry.Next().Sub(now))
	}
	return most
}

// flags are the settings in the last valid configuration, or the saved ones if that is from before the start; nil if it contains none.
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

// reread reads the configuration if it may have changed, or if the last try failed or found it invalid.
func (w *worker) reread(ctx context.Context) {
	c, now := w.state.config, time.Now()
	retried, changed := c.again(now, w.options.Config.Watched), c.rereads.stale && !now.Before(c.rereads.due)
	if !retried && !changed {
		return
	}
	if changed {
		c.rereads.stale = false
		c.rereads.retry.Reset()
		w.state.rollout.changes.checkNow()
	}
	config, err := call(ctx, w, w.options.Config.Read)
	c.take(ctx, w.options.Config, config, err)
	w.output.stale = true
}
