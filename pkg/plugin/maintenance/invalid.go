package maintenance

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// mostEvents bounds the Events of one round: a Node can have thousands of annotations.
const mostEvents = 16

// invalid reports annotations that are not followed, once for each value.
type invalid struct {
	events events.Recorder

	mu      sync.Mutex
	leading bool
	// first are the annotations when the Node was first read, said the values that were reported, by key.
	first, said map[string]string
}

func newInvalid(recorder events.Recorder) *invalid {
	return &invalid{events: recorder, said: map[string]string{}}
}

// begin starts a round with the present annotations.
func (i *invalid) begin(leading bool, annotations map[string]string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.leading = leading
	if i.first == nil {
		i.first = maps.Clone(annotations)
		if i.first == nil {
			i.first = map[string]string{}
		}
	}
	for _, of := range []map[string]string{i.first, i.said} {
		maps.DeleteFunc(of, func(key, value string) bool { now, has := annotations[key]; return !has || now != value })
	}
}

// report writes Events about annotations, if the process leads.
func (i *invalid) report(all []maintenance.Invalid) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.leading {
		return
	}
	written := 0
	for _, one := range all {
		if value, said := i.said[one.Key]; said && value == one.Value {
			continue
		}
		i.said[one.Key] = one.Value
		if written++; written <= mostEvents {
			i.events.Warn(events.GPUCommandInvalid, events.ActionMaintain, one.Why)
		}
	}
	if more := written - mostEvents; more > 0 {
		i.events.Warn(events.GPUCommandInvalid, events.ActionMaintain, fmt.Sprintf("%d more annotations of the node are ignored", more))
	}
}

// set reports whether an annotation was set while the process ran.
func (i *invalid) set(key string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, old := i.first[key]
	return !old
}

// fresh reports whether the refusal of a heal is news: the annotation was set while the process ran, or its time is recent. Others were
// followed by earlier processes.
func (i *invalid) fresh(c *maintenance.Command, now time.Time) bool {
	return i.set(c.Key) || now.Sub(c.Time) < maintenance.ReleaseMax
}
