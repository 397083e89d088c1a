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

// DefaultSyncDelay is the delay between the last change of a ResourceSlice by another client and its correction: long enough that
// the deletion of several ResourceSlices by a starting kubelet is corrected once, short enough that pods do not wait for GPUs.
const DefaultSyncDelay = 500 * time.Millisecond

// A pool that cannot be written is retried after publishRetryFirst, with exponential back-off up to publishRetryMax.
const (
	publishRetryFirst = 100 * time.Millisecond
	publishRetryMax   = 30 * time.Second
)

// SlicesOptions configure NewSlices.
type SlicesOptions struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// DriverName is the driver's name; ResourceSlices of other drivers are never changed.
	DriverName string
	// NodeName is the node of the ResourceSlices and their owner: they are deleted with the Node.
	NodeName string
	// NodeUID is the UID of the Node object; empty: it is read when it is first needed.
	NodeUID types.UID
	// SyncDelay is the delay of corrections; zero means DefaultSyncDelay.
	SyncDelay time.Duration
	// OnError is called with every other error; the write is retried. It must not block. May be nil.
	OnError func(error)
}

// DroppedFields reports that the API server dropped fields of a ResourceSlice, because their feature gates are disabled.
type DroppedFields struct {
	// Pool is the pool's name, Slice the index of the ResourceSlice in it.
	Pool  string
	Slice int
	// Features are the feature gates that seem to be disabled, or "unknown". Never empty.
	Features []string
}

const (
	// featureCounters is the feature gate of shared counters and their consumption.
	featureCounters = "DRAPartitionableDevices"
	// featureTaints is the feature gate of device taints.
	featureTaints = "DRADeviceTaints"
	// featureUnknown stands for feature gates that cannot be determined.
	featureUnknown = "unknown"
)

// Counters reports whether shared counters were, or may have been, dropped. Without them the scheduler may allocate overlapping
// devices at the same time: only a disjoint layout may be published.
func (d DroppedFields) Counters() bool {
	return slices.Contains(d.Features, featureCounters) || slices.Contains(d.Features, featureUnknown)
}

// Taints reports whether taints were, or may have been, dropped.
func (d DroppedFields) Taints() bool {
	return slices.Contains(d.Features, featureTaints) || slices.Contains(d.Features, featureUnknown)
}

// SlicesStats are counts since NewSlices.
type SlicesStats struct {
	// Created, Updated and Deleted count API writes that succeeded.
	Created, Updated, Deleted int64
	// Dropped counts ResourceSlices that were stored without some of their fields.
	Dropped int64
	// Errors counts attempts that failed.
	Errors int64
}

// Slices keeps the ResourceSlices of one driver on one node equal to what was published last: after changes and deletions by other
// clients, after a start of the kubelet (which deletes them) and after errors. All methods are safe for concurrent use.
type Slices struct {
	opts            SlicesOptions
	first           chan struct{}
	dropped, failed atomic.Int64

	mu         sync.Mutex
	desired    *resourceslice.DriverResources
	controller *resourceslice.Controller
	past       resourceslice.Stats
}

// NewSlices returns a controller; nothing is read or written before Run.
func NewSlices(opts SlicesOptions) *Slices {
	if opts.SyncDelay == 0 {
		opts.SyncDelay = DefaultSyncDelay
	}
	return &Slices{opts: opts, first: make(chan struct{})}
}

// Publish sets the desired content of the ResourceSlices, which must not be changed any more. It never blocks on the API server and may be
// called before Run; the last call wins.
func (s *Slices) Publish(resources resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired == nil {
		close(s.first)
	}
	s.desired = &resources // the controller copies it
	if s.controller != nil {
		s.controller.Update(s.desired)
	}
}

// Run maintains the ResourceSlices until ctx is done, then returns nil and leaves them. It must run in one process of a node at a time
// (the holder of the leader lock), and may run again after it returned.
//
// It waits for the first Publish before it reads from the API server: a controller without desired content would delete the
// ResourceSlices of the plugin's previous run.
//
// dropped is called when the server dropped fields. It runs on the publishing goroutine and must not block; it may call Publish.
func (s *Slices) Run(ctx context.Context, dropped func(DroppedFields)) error {
	select {
	case <-s.first:
	case <-ctx.Done():
		return nil
	}
	start, attached := s.current(), make(chan struct{})
	controller, err := resourceslice.StartController(ctx, s.controllerOptions(start, attached, dropped))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("starting the ResourceSlice controller of node %s: %w", s.opts.NodeName, err)
	}
	s.attach(controller, start)
	close(attached)
	<-ctx.Done()
	controller.Stop()
	s.detach(controller)
	return nil
}

// current returns the content that was published last.
func (s *Slices) current() *resourceslice.DriverResources {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired
}

// attach makes Publish update the controller, and passes on content that was published since the controller started. An unchanged value is
// not passed on, because the controller would write dropped fields again.
func (s *Slices) attach(controller *resourceslice.Controller, start *resourceslice.DriverResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controller = controller
	if s.desired != start {
		controller.Update(s.desired)
	}
}

// detach adds the counts of a stopped controller to the counts of earlier ones.
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

// heldQueue returns nothing before attached is closed. While the API server does not answer, the controller starts for a second or more,
// and would begin with the content that was published before: a ResourceSlice would be changed, and changed back at once.
type heldQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	attached <-chan struct{}
}

func (q heldQueue) Get() (pool string, shutdown bool) {
	<-q.attached
	return q.TypedRateLimitingInterface.Get()
}

func (s *Slices) controllerOptions(start *resourceslice.DriverResources, attached <-chan struct{}, dropped func(DroppedFields)) resourceslice.Options {
	options := resourceslice.Options{
		DriverName: s.opts.DriverName,
		KubeClient: s.opts.Client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: s.opts.NodeName, UID: s.opts.NodeUID},
		Resources:  start,
		SyncDelay:  &s.opts.SyncDelay,
		// The library's default queue backs off up to 17 minutes in a long outage of the API server.
		Queue: heldQueue{attached: attached, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](publishRetryFirst, publishRetryMax))},
		ErrorHandler: func(ctx context.Context, err error, what string) { s.handle(ctx, err, what, dropped) },
	}
	allowQualifiedNames(&options)
	return options
}

// handle reports an error of the controller. Errors after the context is done are expected.
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
