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
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// The default times.
const (
	DefaultInterval    = 10 * time.Second
	DefaultMinInterval = time.Second
)

// Options are the dependencies of a Sampler.
type Options struct {
	Library   Library
	Processes Processes
	// Wanted returns the requests of claims for a GPU and its MIG devices; nil: none. It is called in each round and must be quick.
	Wanted func(id gpu.UUID) []Want
	// Sets are the node's sets of fields; nil: metrics.BasicSets. Fields returns the fields of a set, none for an unknown one; nil:
	// metrics.SetFields.
	Sets   []string
	Fields func(set string) []metrics.Field
	// Interval is the time between two rounds on a GPU, MinInterval the shortest interval of a claim. Zero means the default.
	Interval, MinInterval time.Duration
	Log                   logr.Logger
}

// Status is the state of the session with the driver.
type Status struct {
	// Err is the reason why no session is open; nil while one is open.
	Err error
	// Reopened counts the sessions that were closed to let the plugin destroy a MIG device.
	Reopened uint64
	// Errors counts calls that failed or took too long, by GPU.
	Errors map[gpu.UUID]uint64
	// SamplesDropped counts the utilization samples of processes with a time in the future.
	SamplesDropped uint64
	// Unidentified counts the GPUs that do not respond and whose UUIDs are unknown.
	Unidentified int
	// IntervalsLimited counts the devices whose claims request a shorter interval than MinInterval.
	IntervalsLimited int
}

// Sampler samples all GPUs. It is safe for concurrent use.
type Sampler struct {
	opts Options
	// node are the fields of the node's sets.
	node metrics.FieldSet
	// added are the fields of Measure, nil before the first call.
	added atomic.Pointer[metrics.FieldSet]

	mu       sync.Mutex
	snapshot *metrics.Snapshot
	changed  chan struct{}
	status   Status
	// gpus are the GPUs of the snapshot, by UUID. A GPU that was found once stays.
	gpus map[gpu.UUID]*metrics.GPU
	// xids are the errors since the start, sorted by code and GPU instance.
	xids map[gpu.UUID][]metrics.XID
	// limited counts the claims of each GPU whose interval is too short.
	limited map[gpu.UUID]int
	// releases are the MIG devices that will be destroyed.
	releases map[gpu.UUID]*release
	// expiries withdraw the last values of the GPUs when they are old. They run concurrently with the workers, which may wait for an answer.
	expiries map[gpu.UUID]*time.Timer
	// lostGPUs is the backoff between sessions for lost GPUs.
	lostGPUs backoff.Backoff
	// suspended is the time until which no session may be open. suspension is closed when it changes.
	suspended  time.Time
	suspension chan struct{}
	// crew works in the session; nil without one.
	crew *crew
	// workers are the workers of the session.
	workers map[gpu.UUID]*worker
}

// New returns a sampler without samples.
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
		opts: opts, snapshot: &metrics.Snapshot{}, changed: make(chan struct{}), suspension: make(chan struct{}), status: Status{Err: errNotOpened, Errors: map[gpu.UUID]uint64{}},
		gpus: map[gpu.UUID]*metrics.GPU{}, xids: map[gpu.UUID][]metrics.XID{}, limited: map[gpu.UUID]int{},
		releases: map[gpu.UUID]*release{}, expiries: map[gpu.UUID]*time.Timer{}, workers: map[gpu.UUID]*worker{},
		lostGPUs: backoff.Backoff{First: firstLost, Max: mostLost},
	}
	s.node = s.fieldsOf(opts.Sets)
	return s
}

// errNotOpened is the error before the first attempt.
var errNotOpened = errors.New("the driver is not opened yet")

// Measure adds fields to the fields of the node's sets, from the next rounds on. They replace the fields of the previous call.
func (s *Sampler) Measure(fields ...metrics.Field) {
	added := metrics.NewFieldSet(fields...)
	s.added.Store(&added)
}

// nodeFields are the fields of the node's sets, and the added fields.
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

// Snapshot returns the results of the last rounds, never nil. It does not query the driver.
func (s *Sampler) Snapshot() *metrics.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// Changed returns a channel that is closed at the next change of the snapshot.
func (s *Sampler) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status returns the state of the session with the driver.
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

// expect marks the GPU as down unless it responds in time. The caller holds the lock.
func (s *Sampler) expect(identity metrics.Identity, interval time.Duration) {
	if before := s.expiries[identity.UUID]; before != nil {
		before.Stop()
	}
	s.expiries[identity.UUID] = time.AfterFunc(missed*interval, func() { s.expire(identity) })
}

// expire marks a GPU as down that has not responded, unless it did while this call waited for the lock.
func (s *Sampler) expire(identity metrics.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.suspended) {
		return // nothing asks it; the time begins again with the next session
	}
	if g := s.gpus[identity.UUID]; g == nil || !g.Up || time.Since(g.At) >= missed*g.Interval {
		s.putDown(identity)
	}
}

// put publishes with the lock held. The GPU keeps its identity from other sessions.
func (s *Sampler) put(g *metrics.GPU) {
	id := g.Identity.UUID
	if before := s.gpus[id]; before != nil {
		g.Identity = g.Identity.Or(&before.Identity)
	}
	g.XIDs = s.xids[id]
	s.gpus[id] = g
	s.renew()
}

// renew creates a snapshot of the GPUs.
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

// recall identifies the GPUs of the faults, as far as known; the GPUs with these identities respond.
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

// down publishes that a GPU does not respond.
func (s *Sampler) down(identity metrics.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putDown(identity)
}

// putDown is down with the lock held.
func (s *Sampler) putDown(identity metrics.Identity) {
	next := &metrics.GPU{Identity: identity, Interval: s.opts.Interval}
	if before := s.gpus[identity.UUID]; before != nil {
		if !before.Up && !before.Released {
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

// lose publishes that there is no session: no GPU has values.
func (s *Sampler) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, released := errors.AsType[*SuspendedError](err)
	s.status.Err, s.status.Unidentified = err, 0
	for key, g := range s.gpus {
		s.gpus[key] = gone(g)
		s.gpus[key].Released = released
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
