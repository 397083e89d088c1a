package maintenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/health/finding"
)

// The statuses of conditions.
const (
	statusTrue    = "True"
	statusUnknown = "Unknown"
)

// namedLimit is how many unknown identifiers an Event lists.
const namedLimit = 8

// conditions decides which GPUs the conditions of the Node taint.
type conditions struct {
	monitor Monitor
	events  events.Recorder
	// last are the GPUs that each type tainted last, nil before the first conditions.
	last map[string][]gpu.UUID
	// said are the unknown identifiers of each type that were reported.
	said map[string]string
}

func newConditions(monitor Monitor, recorder events.Recorder) *conditions {
	return &conditions{monitor: monitor, events: recorder, said: map[string]string{}}
}

// apply passes the tainted GPUs to the monitor. A condition with status Unknown taints the same GPUs as before, also before a restart.
func (c *conditions) apply(present []Condition, known *names, leading bool) {
	if c.last == nil {
		c.recall()
	}
	now := map[string][]gpu.UUID{}
	for i := range present {
		switch of := &present[i]; of.Status {
		case statusTrue:
			now[of.Type] = c.tainted(of, known, leading)
		case statusUnknown:
			now[of.Type] = c.last[of.Type]
		}
	}
	maps.DeleteFunc(c.said, func(kind, _ string) bool { _, has := now[kind]; return !has })
	c.last = now
	of := map[gpu.UUID][]string{}
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		for _, id := range now[kind] {
			of[id] = append(of[id], kind)
		}
	}
	c.monitor.Conditions(of)
}

// recall takes the GPUs of an earlier process.
func (c *conditions) recall() {
	c.last = map[string][]gpu.UUID{}
	for _, f := range c.monitor.All() {
		if f.Key == finding.NodeCondition {
			c.last[f.Value] = append(c.last[f.Value], f.GPU)
		}
	}
}

// tainted returns the GPUs that a condition taints: the named ones; all if it names none. None if it names only GPUs that the node does
// not have.
func (c *conditions) tainted(of *Condition, known *names, leading bool) (ids []gpu.UUID) {
	named := identifiers(of.Reason + " " + of.Message)
	for i := range known.gpus {
		g := &known.gpus[i]
		if len(named) == 0 || slices.ContainsFunc(identifiersOf(g), func(id string) bool { return slices.Contains(named, id) }) {
			ids = append(ids, g.UUID)
		}
	}
	if len(ids) > 0 || len(named) == 0 || !known.current {
		delete(c.said, of.Type)
		return ids
	}
	listed := strings.Join(named[:min(len(named), namedLimit)], ", ")
	if leading && c.said[of.Type] != listed {
		c.said[of.Type] = listed
		c.events.Warn(events.NodeConditionUnmatched, events.ActionDetect,
			fmt.Sprintf("Condition %s of the node names only GPUs that the node does not have, and taints none: %s", of.Type, listed))
	}
	return nil
}
