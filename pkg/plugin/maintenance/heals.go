package maintenance

import (
	"fmt"
	"maps"
	"time"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/maintenance"
)

// heals ends findings, once for each value of an annotation, and again when the process begins to lead: the monitor has then read the
// findings of an earlier process.
type heals struct {
	monitor Monitor
	events  events.Recorder
	// done are the annotations that were followed, by key.
	done map[string]healed
}

// healed is an annotation that was followed.
type healed struct {
	value string
	// leads is how often the process had begun to lead.
	leads int
	// success: findings were ended.
	success bool
}

func newHeals(monitor Monitor, recorder events.Recorder) *heals {
	return &heals{monitor: monitor, events: recorder, done: map[string]healed{}}
}

// apply follows the commands that were not followed yet.
func (h *heals) apply(commands []maintenance.Command, known *names, news *invalid, leads int, leading bool) {
	present := map[string]bool{}
	for i := range commands {
		c := &commands[i]
		ids := known.of(c.GPU)
		if c.Verb != maintenance.Heal || len(ids) != 1 {
			continue
		}
		present[c.Key] = true
		before := h.done[c.Key]
		again := before.value == c.Value
		if again && before.leads == leads {
			continue
		}
		if why := maintenance.CheckHeal(c.Time, time.Now()); why != "" {
			news.report([]maintenance.Invalid{refusal(c, why)})
			continue
		}
		err := h.monitor.Heal(ids[0], c.Time)
		success := err == nil || again && before.success
		h.done[c.Key] = healed{c.Value, leads, success}
		if !success && leading && news.fresh(c, time.Now()) {
			h.events.Warn(events.GPUHealRefused, events.ActionMaintain, fmt.Sprintf("GPU %s (%s) is not healed: %v", c.GPU, ids[0], err))
		}
	}
	maps.DeleteFunc(h.done, func(key string, _ healed) bool { return !present[key] })
}
