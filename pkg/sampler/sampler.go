package sampler

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/prism-gpu/prism/pkg/backoff"
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
	// Sets are the node's sets of fields; nil: metrics.BasicSets. Fields returns the fields of a set, none of an unknown one; nil:
	// metrics.SetFields.
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
	// SamplesDropped counts the utilization samples of processes with a time in the future.
	SamplesDropped uint64
	// Unidentified counts the GPUs that do not respond and of which it is not known which ones they are.
	Unidentified int
	// IntervalsLimited counts the devices whose claims ask for a shorter interval than MinInterval.
	IntervalsLimited int
}

// Sampler samples all GPUs. It is safe for concurrent use.
type Sampler struct {
	opts Options
	// node are the fields of the node's sets.
	node metrics.FieldSet
	// added are those of Measure, nil before it is called.
	added atomic.Pointer[metrics.FieldSet]

	mu       sync.Mutex
	snapshot *metrics.Snapshot
	changed  chan struct{}
	status   Status
	// gpus are those of the snapshot, by UUID. One that has been there once stays.
	gpus map[gpu.UUID]*metrics.GPU
	// xids are those since the start, sorted by code and GPU instance.
	xids map[gpu.UUID][]metrics.XID
	// limited counts the claims of each GPU whose interval is not granted.
	limited map[gpu.UUID]int
	// releases are the MIG devices that are about to be destroyed.
	releases map[gpu.UUID]*release
	// expiries take back what the GPUs answered last when it is old. They run beside the workers, which may wait for an answer.
	expiries map[gpu.UUID]*time.Timer
	// lostGPUs is when a session is reopened for lost GPUs.
	lostGPUs backoff.Backoff
	// workers are those of the session.
	workers map[gpu.UUID]*worker
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
	if opts.Sets == nil {
		opts.Sets = metrics.BasicSets
	}
	if opts.Fields == nil {
		opts.Fields = metrics.SetFields
	}
	if opts.Wanted == nil {
		opts.Wanted = func(gpu.UUID) []Want { return nil }
	}
	s := &Sampler{
		opts: opts, snapshot: &metrics.Snapshot{}, changed: make(chan struct{}), status: Status{Err: errNotOpened, Errors: map[gpu.UUID]uint64{}},
		gpus: map[gpu.UUID]*metrics.GPU{}, xids: map[gpu.UUID][]metrics.XID{}, limited: map[gpu.UUID]int{},
		releases: map[gpu.UUID]*release{}, expiries: map[gpu.UUID]*time.Timer{}, workers: map[gpu.UUID]*worker{},
		lostGPUs: backoff.Backoff{First: firstLost, Max: mostLost},
	}
	s.node = s.fieldsOf(opts.Sets)
	return s
}

// errNotOpened is the state before the first attempt.
var errNotOpened = errors.New("the driver is not opened yet")

// Measure adds fields to those of the node's sets, in place of those that were added before, from the next rounds on.
func (s *Sampler) Measure(fields ...metrics.Field) {
	added := metrics.NewFieldSet(fields...)
	s.added.Store(&added)
}

// nodeFields are those of the node's sets, and those that were added.
func (s *Sampler) nodeFields() metrics.FieldSet {
	fields := s.node
	if added := s.added.Load(); added != nil {
		fields.AddSet(*added)
	}
	return fields
}

func (s *Sampler) fieldsOf(sets []string) metrics.FieldSet {
	var fields metrics.FieldSet
	for _, set := range sets {
		fields.Add(s.opts.Fields(set)...)
	}
	return fields
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
	status := s.status
	status.Errors = maps.Clone(s.status.Errors)
	for _, count := range s.limited {
		status.IntervalsLimited += count
	}
	return status
}

// publish replaces a GPU in the snapshot.
func (s *Sampler) publish(g *metrics.GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(g)
	s.expect(g.Identity, g.Interval)
}

// expect has the GPU go down unless it answers in time. The lock is held.
func (s *Sampler) expect(identity metrics.Identity, interval time.Duration) {
	if before := s.expiries[identity.UUID]; before != nil {
		before.Stop()
	}
	s.expiries[identity.UUID] = time.AfterFunc(missed*interval, func() { s.expire(identity) })
}

// expire takes a GPU down that has not answered, unless it did while this waited for the lock.
func (s *Sampler) expire(identity metrics.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gpus[identity.UUID]; g == nil || !g.Up || time.Since(g.At) >= missed*g.Interval {
		s.putDown(identity)
	}
}

// put is publish with the lock held. The GPU keeps what was known of it in another session.
func (s *Sampler) put(g *metrics.GPU) {
	id := g.Identity.UUID
	if before := s.gpus[id]; before != nil {
		g.Identity = g.Identity.Or(&before.Identity)
	}
	g.XIDs = s.xids[id]
	s.gpus[id] = g
	s.renew()
}

// renew makes a snapshot of the GPUs.
func (s *Sampler) renew() {
	next := &metrics.Snapshot{Generation: s.snapshot.Generation + 1, GPUs: make([]*metrics.GPU, 0, len(s.gpus))}
	for _, g := range s.gpus {
		next.GPUs = append(next.GPUs, g)
	}
	slices.SortFunc(next.GPUs, func(a, b *metrics.GPU) int {
		return cmp.Or(cmp.Compare(a.Identity.Index, b.Identity.Index), cmp.Compare(a.Identity.UUID, b.Identity.UUID))
	})
	s.snapshot = next
	close(s.changed)
	s.changed = make(chan struct{})
}

// recall says which GPUs the faults are, as far as that is known, while those with these identities answer.
func (s *Sampler) recall(faults []gpu.Fault, answer []metrics.Identity) []gpu.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []gpu.GPU
	for _, g := range s.gpus {
		id := &g.Identity
		if !slices.ContainsFunc(answer, func(other metrics.Identity) bool { return other.UUID == id.UUID }) {
			missing = append(missing, gpu.GPU{UUID: id.UUID, Index: id.Index, PCI: gpu.PCI{BusID: id.PCIBusID}})
		}
	}
	recalled := gpu.Recall(faults, missing)
	s.status.Unidentified = 0
	for _, fault := range recalled {
		if fault.UUID == "" {
			s.status.Unidentified++
		}
	}
	return recalled
}

// down publishes that a GPU has no values any more.
func (s *Sampler) down(identity metrics.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putDown(identity)
}

// putDown is down with the lock held.
func (s *Sampler) putDown(identity metrics.Identity) {
	next := &metrics.GPU{Identity: identity, Interval: s.opts.Interval}
	if before := s.gpus[identity.UUID]; before != nil {
		if !before.Up {
			return
		}
		next = gone(before)
	}
	s.put(next)
}

// gone is a GPU that does not respond any more.
func gone(g *metrics.GPU) *metrics.GPU {
	return &metrics.GPU{Identity: g.Identity, At: g.At, Interval: g.Interval, XIDs: g.XIDs, Values: g.Values.Only(metrics.Events)}
}

// lose publishes that there is no driver: no GPU has values.
func (s *Sampler) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Err, s.status.Unidentified = err, 0
	for key, g := range s.gpus {
		s.gpus[key] = gone(g)
	}
	s.renew()
}

// failed counts a round that ended with an error.
func (s *Sampler) failed(id gpu.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Errors[id]++
}

// dropped counts samples with a time in the future.
func (s *Sampler) dropped(samples int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.SamplesDropped += uint64(samples) //nolint:gosec // not negative
}

// note counts an XID.
func (s *Sampler) note(id gpu.UUID, xid metrics.XID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	xids := slices.Clone(s.xids[id])
	at, known := slices.BinarySearchFunc(xids, xid, func(a, b metrics.XID) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.GPUInstance, b.GPUInstance))
	})
	if !known {
		xids = slices.Insert(xids, at, metrics.XID{Code: xid.Code, GPUInstance: xid.GPUInstance})
	}
	xids[at].Count++
	xids[at].Last = time.Now()
	kept := xids[at].Times[max(0, len(xids[at].Times)+1-metrics.XIDTimes):]
	xids[at].Times = append(slices.Clone(kept), xids[at].Last)
	s.xids[id] = xids
	if before := s.gpus[id]; before != nil {
		next := *before
		s.put(&next)
	}
}
