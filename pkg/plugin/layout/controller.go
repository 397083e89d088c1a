package layout

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// Controller decides how the node's GPUs are advertised. A GPU whose devices are allocated stays advertised as it was, in the same pool,
// until they are released.
type Controller struct {
	options  *Options
	requests *requests
	output   *output
	// writing holds a token of the goroutine that uses worker: Run's as long as it runs, else Begin's or Lead's.
	writing chan struct{}
	worker  *worker
}

// New returns a Controller without a configuration; Begin passes one in, or Run reads it. Layouts that were saved before this
// start stay until their change is due.
func New(options Options) *Controller {
	c := &Controller{options: &options, requests: &requests{wake: make(chan struct{}, 1)}, output: &output{stale: true}, writing: make(chan struct{}, 1)}
	c.worker = newWorker(c.options, c.requests, c.output)
	return c
}

// Begin takes the configuration and the records that were read at the start, and probes the API server if required. No claim may be
// prepared or unprepared before it returns, and Run may not run yet.
func (c *Controller) Begin(ctx context.Context, read AtStart) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.worker.begin(ctx, read)
}

// Run brings every GPU to its configured layout, and returns when the context ends. It calls changed when a known snapshot replaces another
// one; changed must not block.
func (c *Controller) Run(ctx context.Context, changed func()) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.output.changed = changed
	c.worker.run(ctx)
	return nil
}

// Snapshot returns the layout on the GPUs of the inventory's latest view. It never waits.
func (c *Controller) Snapshot() *Snapshot {
	s, view := c.output.latest.Load(), c.options.Inventory.Current()
	if s.view == view {
		return s
	}
	return s.on(view)
}

// Lead sets whether this process is the one that publishes. Only the leading process changes layouts, beginning with the layouts that the
// previous process saved. When Lead returns, the snapshot contains the change, and a process that does not lead any more saves no layouts:
// the goroutine that writes has applied the change, or no such goroutine runs.
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

// ConnectionLost is called when a connection to the API server was lost, as by an upgrade: its features are probed again. It does not block.
func (c *Controller) ConnectionLost() { c.requests.leave(func(r *request) { r.lost = true }) }

// FieldsDropped is called when the API server has dropped fields: its features are probed again after a while. It does not block.
func (c *Controller) FieldsDropped() { c.requests.leave(func(r *request) { r.dropped = true }) }

// request holds the pending requests of other goroutines.
type request struct {
	// leading is nil without a call of Lead; taken are closed when the request is applied.
	leading                                *bool
	taken                                  []chan struct{}
	reload, countersDropped, taintsDropped bool
	lost, dropped                          bool
}

// requests passes requests to the goroutine that writes.
type requests struct {
	mu   sync.Mutex
	left request
	wake chan struct{} // holds a token while requests may be pending
}

// leave adds to the pending requests.
func (r *requests) leave(add func(*request)) {
	r.mu.Lock()
	add(&r.left)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the pending requests and clears them.
func (r *requests) take() request {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left
	r.left = request{}
	return left
}

// output is the latest snapshot. The goroutine that writes replaces it, and alone uses the fields after it.
type output struct {
	latest atomic.Pointer[Snapshot]
	// stale: an input of the snapshot has changed.
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

// view is the inventory's view that the latest snapshot was computed for.
func (o *output) view() *inventory.View { return o.latest.Load().view }
