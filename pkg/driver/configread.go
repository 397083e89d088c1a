package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/events"
)

// configuration is what is known of a node's configuration.
type configuration struct {
	// last is the last good one, nil where there is none for the node; known: there was a good one since the start.
	last  *v1alpha1.NodeConfig
	known bool
	// before: there is something that was offered before the start.
	before bool
	// unread is why nothing is known that could be offered.
	unread error
	// good: it was read; fits: these GPUs can give what it says; passing: it could not be read for a reason of the moment; stale: it may
	// be another one by now.
	good, fits, passing, stale bool
	// failures counts the tries that only time can help; the next one is not before retry, after the wait.
	failures int
	retry    time.Time
	wait     time.Duration
	// wrong is what people were told is wrong with it now.
	wrong map[wrongness]problem
}

// wrongness is a side of the configuration that may be wrong.
type wrongness string

const (
	wrongText wrongness = "text"
	wrongGPUs wrongness = "gpus"
)

type problem struct{ reason, note string }

// ConfigReasons are the reasons for which a configuration is not in force, as Events and the metric have them.
var ConfigReasons = []string{reasonUnread, reasonRefused}

const (
	reasonUnread  = events.NodeConfigUnavailable
	reasonRefused = events.NodeConfigInvalid
)

// debounce is how long changes are waited for after one: people change label and content together.
const debounce = 500 * time.Millisecond

func unread(node string) configuration {
	return configuration{unread: fmt.Errorf("the configuration of node %s was not read yet", node), wrong: map[wrongness]problem{}}
}

// Load reads the configuration once. It returns false as long as it should be tried again. Of one that is refused the last good one
// stays, over a restart what was offered before; of one that cannot be read too, after some patience.
func (o *Offering) Load(ctx context.Context) bool {
	config, err := o.ports.Read(ctx)
	return o.take(ctx, config, err)
}

// take is told what was read, or why nothing was.
func (o *Offering) take(ctx context.Context, config *v1alpha1.NodeConfig, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &o.config
	c.passing = false
	switch {
	case err == nil:
		c.last, c.known, c.unread, c.failures = config, true, nil, 0
		o.right(wrongText)
	case o.ports.Passing(err):
		c.passing = true
		if !c.known && c.unread != nil {
			c.unread = err
		}
		klog.FromContext(ctx).Error(err, "The node's configuration was not read yet")
		if c.failures++; c.failures >= patience {
			if c.before {
				c.unread = nil
			}
			o.wrong(wrongText, reasonUnread, fmt.Sprintf("%s: %v", c.stays("No change of what is offered is published"), err))
		}
	default:
		c.unread = nil
		o.wrong(wrongText, reasonRefused, fmt.Sprintf("%s: %v", c.stays("GPUs are offered whole"), err))
	}
	o.seen, c.good, c.fits = nil, err == nil, true
	return c.good
}

// stays says what is offered while the configuration is not known: the last that is known, or else what is said.
func (c *configuration) stays(otherwise string) string {
	switch {
	case c.known:
		return "The configuration that was read before stays"
	case c.before:
		return "GPUs are offered as before this start"
	default:
		return otherwise
	}
}

// Reload makes Run read the configuration anew. It does not block.
func (o *Offering) Reload() {
	o.mu.Lock()
	o.config.stale = true
	o.mu.Unlock()
	o.nudge()
}

// reread reads the configuration where it may be another one by now, or where the last try says that this one is not all that will be
// known; false where neither is so.
func (o *Offering) reread(ctx context.Context) bool {
	o.mu.Lock()
	stale, due := o.config.stale, o.config.again(time.Now(), o.ports.Watched)
	o.mu.Unlock()
	if !stale && !due {
		return false
	}
	if stale {
		select {
		case <-ctx.Done():
		case <-time.After(debounce):
		}
		o.mu.Lock()
		o.config.stale, o.config.wait = false, 0
		o.going.soon()
		o.mu.Unlock()
	}
	o.Load(ctx)
	return true
}

// again tells whether the configuration is to be read again now: after rereadFirst, then after twice as long each time up to rereadMax.
// One that is wrong waits for another text where that is watched, and for other GPUs, for which it need not be read.
func (c *configuration) again(now time.Time, watched bool) bool {
	if !c.passing && (watched || c.good && c.fits) {
		c.wait = 0
		return false
	}
	if now.Before(c.retry) {
		return false
	}
	c.wait = min(max(2*c.wait, rereadFirst), rereadMax)
	c.retry = now.Add(c.wait)
	return true
}

// wrong tells what is wrong, once as long as it is so.
func (o *Offering) wrong(what wrongness, reason, note string) {
	now := problem{reason: reason, note: note}
	if o.config.wrong[what] == now {
		return
	}
	o.config.wrong[what] = now
	klog.Background().Info("The node's configuration is not in force", "reason", note)
	o.ports.Events.Warn(reason, events.ActionConfigure, note)
}

// right notes that nothing is wrong in this regard any more, and tells it when nothing is wrong at all.
func (o *Offering) right(what wrongness) {
	if _, was := o.config.wrong[what]; !was {
		return
	}
	delete(o.config.wrong, what)
	if len(o.config.wrong) == 0 {
		klog.Background().Info("The node's configuration is good again")
		o.ports.Events.Normal(events.NodeConfigAccepted, events.ActionConfigure, "The node's configuration is good again; GPUs change to it as they become free")
	}
}

// Flags are the settings in the last good configuration, which may be one from before the start; nil where it has none.
func (o *Offering) Flags() *v1alpha1.NodeFlags {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flags()
}

func (o *Offering) flags() *v1alpha1.NodeFlags {
	switch {
	case !o.config.known:
		return o.drain.saved.Flags
	case o.config.last == nil:
		return nil
	default:
		return o.config.last.Flags
	}
}

// Problems lists the reasons for which the configuration is not in force.
func (o *Offering) Problems() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var reasons []string
	for _, p := range o.config.wrong {
		reasons = append(reasons, p.reason)
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}
