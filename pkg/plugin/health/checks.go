package health

import (
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// afterEvent are the times after an event at which its GPU is polled: some states of the driver follow the event.
var afterEvent = []time.Duration{time.Second, 5 * time.Second}

// checkPause is the shortest time between two polls of a GPU because of events: applications can cause any number of them.
const checkPause = time.Second

// checks plans the polls after events. The empty UUID is about all GPUs.
type checks struct {
	mu   sync.Mutex
	gpus map[gpu.UUID]*check
}

// check is the plan of a GPU.
type check struct {
	due     []time.Time
	last    time.Time
	running bool
}

func newChecks() *checks { return &checks{gpus: map[gpu.UUID]*check{}} }

// event plans the polls after an event; they replace planned later ones. It reports whether one is due sooner than before.
func (c *checks) event(id gpu.UUID, now time.Time) (sooner bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gpus[id]
	if g == nil {
		g = &check{}
		c.gpus[id] = g
	}
	first := now
	if earliest := g.last.Add(checkPause); earliest.After(now) {
		first = earliest
	}
	sooner = len(g.due) == 0 || first.Before(g.due[0])
	g.due = append(g.due[:0], first)
	for _, wait := range afterEvent {
		g.due = append(g.due, now.Add(wait))
	}
	return sooner
}

// take returns the GPUs to be polled now. Each is polled by itself, as one that hangs delays its poll; done ends it.
func (c *checks) take(now time.Time) (ids []gpu.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, g := range c.gpus {
		if g.running || len(g.due) == 0 || g.due[0].After(now) {
			continue
		}
		for len(g.due) > 0 && !g.due[0].After(now) {
			g.due = g.due[1:]
		}
		g.last, g.running = now, true
		ids = append(ids, id)
	}
	return ids
}

// done ends a poll.
func (c *checks) done(id gpu.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gpus[id].running = false
}

// next is when take has something to return; zero: after an event or after done.
func (c *checks) next() (next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gpus {
		if !g.running && len(g.due) > 0 && (next.IsZero() || g.due[0].Before(next)) {
			next = g.due[0]
		}
	}
	return next
}
