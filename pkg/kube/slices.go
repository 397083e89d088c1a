package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// DefaultSyncDelay is how long after the last change of a slice by somebody else the slices are put right again: long enough
// that a kubelet that wipes several slices is answered once, short enough that nobody waits for GPUs.
const DefaultSyncDelay = 500 * time.Millisecond

// A pool that cannot be written is tried again after publishRetryFirst, then twice as long each time up to publishRetryMax.
const (
	publishRetryFirst = 100 * time.Millisecond
	publishRetryMax   = 30 * time.Second
)

// SlicesOptions configure NewSlices.
type SlicesOptions struct {
	// Client talks to the API server.
	Client kubernetes.Interface
	// DriverName is the driver whose slices these are; slices of others are never touched.
	DriverName string
	// NodeName is the node the slices belong to, and their owner: they go when the Node goes.
	NodeName string
	// NodeUID is the UID of the Node object; empty: it is read when it is needed first.
	NodeUID types.UID
	// SyncDelay replaces DefaultSyncDelay where it is not zero.
	SyncDelay time.Duration
	// OnError is told what else keeps the slices from being written; retrying goes on. It must not block. May be nil.
	OnError func(error)
}

// DroppedFields says that the API server left fields of a slice out, because features they belong to are off there.
type DroppedFields struct {
	// Pool and Slice say where: the pool's name and the slice's index in it.
	Pool  string
	Slice int
	// Features are the names of the feature gates that seem to be off, "unknown" where it cannot be told. Never empty.
	Features []string
}

const (
	// featureCounters is the feature gate of counter sets and of what devices consume of them.
	featureCounters = "DRAPartitionableDevices"
	// featureTaints is the feature gate of taints in slices.
	featureTaints = "DRADeviceTaints"
	// featureUnknown stands where it cannot be told.
	featureUnknown = "unknown"
)

// Counters tells whether counters are, or may be, among what was left out. Nothing keeps devices that exclude each other apart
// then: only a disjoint layout may be published.
func (d DroppedFields) Counters() bool {
	return slices.Contains(d.Features, featureCounters) || slices.Contains(d.Features, featureUnknown)
}

// Taints tells whether taints are, or may be, among what was left out.
func (d DroppedFields) Taints() bool {
	return slices.Contains(d.Features, featureTaints) || slices.Contains(d.Features, featureUnknown)
}

// SlicesStats count what happened since NewSlices.
type SlicesStats struct {
	// Created, Updated and Deleted count API writes that succeeded.
	Created, Updated, Deleted int64
	// Dropped counts slices that were stored without some of their fields.
	Dropped int64
	// Errors counts attempts that failed.
	Errors int64
}

// Slices keeps the ResourceSlices of one driver on one node equal to what was published last: after changes and deletions by
// others, after a kubelet start (which wipes them) and after errors. All methods can be called from any goroutine.
type Slices struct {
	opts            SlicesOptions
	first           chan struct{}
	dropped, failed atomic.Int64

	mu         sync.Mutex
	desired    *resourceslice.DriverResources
	controller *resourceslice.Controller
	past       resourceslice.Stats
}

// NewSlices prepares the controller; nothing is read or written before Run.
func NewSlices(opts SlicesOptions) *Slices {
	if opts.SyncDelay == 0 {
		opts.SyncDelay = DefaultSyncDelay
	}
	return &Slices{opts: opts, first: make(chan struct{})}
}

// Publish sets what the slices should say from now on. It never blocks on the API server, may be called before Run, and the
// last call wins. The value is copied.
func (s *Slices) Publish(resources resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired == nil {
		close(s.first)
	}
	s.desired = resources.DeepCopy()
	if s.controller != nil {
		s.controller.Update(s.desired)
	}
}

// Run keeps the slices until ctx ends, then returns nil; the slices stay. It must run in one process of a node at a time (the
// holder of the lead lock), and may run again after it returned.
//
// It waits for the first Publish before it looks at the API server: a controller that does not know yet what the node has
// would delete the slices of the plugin's previous run.
//
// dropped is told when the server stored less than was published. It runs on the publishing goroutine and must not block; calling
// Publish with a smaller layout is fine.
func (s *Slices) Run(ctx context.Context, dropped func(DroppedFields)) error {
	select {
	case <-s.first:
	case <-ctx.Done():
		return nil
	}
	start := s.current()
	controller, err := resourceslice.StartController(ctx, s.controllerOptions(start, dropped))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("starting the ResourceSlice controller of node %s: %w", s.opts.NodeName, err)
	}
	s.attach(controller, start)
	<-ctx.Done()
	controller.Stop()
	s.detach(controller)
	return nil
}

// current returns what was published last.
func (s *Slices) current() *resourceslice.DriverResources {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired
}

// attach makes controller the one that Publish talks to, and hands it what was published since it started. The same again
// would make it ask once more for fields that the server has just dropped.
func (s *Slices) attach(controller *resourceslice.Controller, start *resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = controller
	if s.desired != start {
		controller.Update(s.desired)
	}
}

// detach keeps the counts of a controller that has stopped.
func (s *Slices) detach(controller *resourceslice.Controller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = nil
	stats := controller.GetStats()
	s.past.NumCreates += stats.NumCreates
	s.past.NumUpdates += stats.NumUpdates
	s.past.NumDeletes += stats.NumDeletes
}

// Stats returns the counts so far.
func (s *Slices) Stats() SlicesStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now resourceslice.Stats
	if s.controller != nil {
		now = s.controller.GetStats()
	}
	return SlicesStats{
		Created: s.past.NumCreates + now.NumCreates,
		Updated: s.past.NumUpdates + now.NumUpdates,
		Deleted: s.past.NumDeletes + now.NumDeletes,
		Dropped: s.dropped.Load(),
		Errors:  s.failed.Load(),
	}
}

func (s *Slices) controllerOptions(start *resourceslice.DriverResources, dropped func(DroppedFields)) resourceslice.Options {
	return resourceslice.Options{
		DriverName: s.opts.DriverName,
		KubeClient: s.opts.Client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: s.opts.NodeName, UID: s.opts.NodeUID},
		Resources:  start,
		SyncDelay:  &s.opts.SyncDelay,
		// The library's own queue would wait up to 17 minutes between attempts after a long outage of the API server.
		Queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](publishRetryFirst, publishRetryMax)),
		ErrorHandler: func(ctx context.Context, err error, what string) { s.handle(ctx, err, what, dropped) },
	}
}

// handle sorts what the controller reports. What fails because Run is ending is no news.
func (s *Slices) handle(ctx context.Context, err error, what string, dropped func(DroppedFields)) {
	if ctx.Err() != nil {
		return
	}
	var fields *resourceslice.DroppedFieldsError
	if errors.As(err, &fields) {
		s.dropped.Add(1)
		dropped(droppedFields(fields))
		return
	}
	s.failed.Add(1)
	if s.opts.OnError != nil {
		s.opts.OnError(fmt.Errorf("publishing ResourceSlices of node %s: %s: %w", s.opts.NodeName, what, err))
	}
}

func droppedFields(err *resourceslice.DroppedFieldsError) DroppedFields {
	features := err.DisabledFeatures()
	if len(features) == 0 {
		features = []string{featureUnknown}
	}
	return DroppedFields{Pool: err.PoolName, Slice: err.SliceIndex, Features: features}
}
