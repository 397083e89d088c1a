package layout

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prism-gpu/prism/pkg/inventory"
)

// Controller decides what the node's GPUs are advertised as. A GPU whose devices claims have keeps being advertised as it was, in the same
// pool, until they are released.
type Controller struct {
	ports    *Ports
	requests *requests
	output   *output
	// writing has a token of the goroutine that uses worker: Run's as long as it runs, else Begin's or Lead's.
	writing chan struct{}
	worker  *worker
}

// New returns a Controller that knows nothing before Begin, or before Run has read the configuration. Layouts that were saved before this
// start stay until their change is due.
func New(ports Ports) *Controller {
	c := &Controller{ports: &ports, requests: &requests{wake: make(chan struct{}, 1)}, output: &output{stale: true}, writing: make(chan struct{}, 1)}
	c.worker = newWorker(c.ports, c.requests, c.output)
	return c
}

// Begin takes what was read at the start, and probes the API server where that is needed. No claim may come or go before it returns, and Run
// may not run yet.
func (c *Controller) Begin(ctx context.Context, read AtStart) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.worker.begin(ctx, read)
}

// Run brings every GPU to what the configuration says, and returns when the context ends. Changed is called at every snapshot that replaces
// another one and is known; it must not block.
func (c *Controller) Run(ctx context.Context, changed func()) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.output.changed = changed
	c.worker.run(ctx)
	return nil
}

// Snapshot returns the layout on the GPUs of the inventory's latest view. It never waits.
func (c *Controller) Snapshot() *Snapshot {
	s, view := c.output.latest.Load(), c.ports.Inventory.Current()
	if s.view == view {
		return s
	}
	return s.on(view)
}

// Lead says whether this process is the one that publishes. Only then GPUs change their layout, beginning with what the process before it
// had come to. When it returns the snapshot says so, and a process that does not lead any more saves nothing: the goroutine that writes has
// taken it up, or there is none now.
func (c *Controller) Lead(leading bool) {
	taken := make(chan struct{})
	c.requests.leave(func(r *request) {
		r.leading = &leading
		r.taken = append(r.taken, taken)
	})
	select {
	case <-taken:
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
		c.worker.update()
	}
}

// Reload has Run read the configuration again. It does not block.
func (c *Controller) Reload() { c.requests.leave(func(r *request) { r.reload = true }) }

// CountersUnsupported is called when the API server has dropped shared counters: from now on no GPU is advertised with devices that exclude
// each other. It does not block.
func (c *Controller) CountersUnsupported() {
	c.requests.leave(func(r *request) { r.countersDropped = true })
}

// TaintsUnsupported is called when the API server has dropped taints: layouts change without them. It does not block.
func (c *Controller) TaintsUnsupported() {
	c.requests.leave(func(r *request) { r.taintsDropped = true })
}

// request is what other goroutines have asked for since it was taken up last.
type request struct {
	// leading is nil where that is not asked for; taken are closed when it is taken up.
	leading                                *bool
	taken                                  []chan struct{}
	reload, countersDropped, taintsDropped bool
}

// requests hands requests to the goroutine that writes.
type requests struct {
	mu   sync.Mutex
	left request
	wake chan struct{} // has a token while something may be left
}

// leave adds to what is asked for.
func (r *requests) leave(add func(*request)) {
	r.mu.Lock()
	add(&r.left)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns what was asked for.
func (r *requests) take() request {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left
	r.left = request{}
	return left
}

// output is the latest snapshot. The goroutine that writes replaces it, and uses what follows.
type output struct {
	latest atomic.Pointer[Snapshot]
	// stale: something that it was computed from has changed.
	stale   bool
	changed func() // nil before Run
}

// store replaces the snapshot.
func (o *output) store(s *Snapshot) {
	o.latest.Store(s)
	if o.changed != nil && s.Err == nil {
		o.changed()
	}
}

// view is the one that the latest snapshot was computed for.
func (o *output) view() *inventory.View { return o.latest.Load().view }
