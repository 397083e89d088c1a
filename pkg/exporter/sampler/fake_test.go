package sampler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// fakeLibrary is a driver whose answers are set by a test.
type fakeLibrary struct {
	mu      sync.Mutex
	openErr error
	opened  int
	open    bool
	gpus    map[gpu.UUID]*fakeGPU
	faults  []gpu.Fault
	xids    []fakeXID
	// xidErr is the error of calls for XIDs.
	xidErr error
	// held are the targets whose samples are not freed.
	held map[string]bool
}

type fakeXID struct {
	id  gpu.UUID
	xid metrics.XID
}

// fakeGPU returns its values. hang makes each call fail at its deadline.
type fakeGPU struct {
	identity  metrics.Identity
	devices   []metrics.MIGDevice
	processes []metrics.Process
	hidden    bool
	// ahead is the number of utilization samples in each round with a time in the future.
	ahead int
	err   error
	hang  bool
	// pause is the duration of the next call, which succeeds: the machine was suspended.
	pause time.Duration
	// lostUntil is the number of the session that finds the lost GPU again. unread: earlier sessions do not report the identity of the GPU.
	lostUntil int
	unread    bool
	// ecc is the number of its uncorrected ECC errors.
	ecc float64
	// sends is its traffic over NVLink, bytes per second since began.
	sends  float64
	began  time.Time
	rounds int
	asked  metrics.FieldSet
	// sampled is the time of the last sample of each target, closest the shortest time between two samples of one target.
	sampled map[int]time.Time
	closest time.Duration
	// calls is the duration of each call.
	calls time.Duration
	// baselines counts the samples that were baselines, compared the others, by target.
	baselines, compared map[int]int
}

const callLimit = 2 * time.Second

func newFake(count int) *fakeLibrary {
	f := &fakeLibrary{gpus: map[gpu.UUID]*fakeGPU{}, held: map[string]bool{}}
	for i := range count {
		id := gpu.UUID(fmt.Sprintf("GPU-%d", i))
		f.gpus[id] = &fakeGPU{identity: metrics.Identity{UUID: id, Index: i, GPM: true}, baselines: map[int]int{}, compared: map[int]int{},
			sampled: map[int]time.Time{}, closest: time.Hour}
	}
	return f
}

// change changes the driver while it is sampled.
func (f *fakeLibrary) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fakeLibrary) Open(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return f.openErr
	}
	f.open, f.opened = true, f.opened+1
	return nil
}

func (f *fakeLibrary) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
	f.held = map[string]bool{}
	return nil
}

func (f *fakeLibrary) GPUs(context.Context) ([]metrics.Identity, []gpu.Fault, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var identities []metrics.Identity
	faults := slices.Clone(f.faults)
	for _, id := range slices.Sorted(maps.Keys(f.gpus)) {
		if g := f.gpus[id]; f.opened < g.lostUntil {
			fault := gpu.Fault{Index: g.identity.Index, UUID: id, Err: gpu.ErrLost}
			if g.unread {
				fault.UUID = ""
			}
			faults = append(faults, fault)
			continue
		}
		identities = append(identities, f.gpus[id].identity)
	}
	return identities, faults, nil
}

// at begins every call on a GPU.
func (f *fakeLibrary) at(id gpu.UUID) (*fakeGPU, error) {
	f.mu.Lock()
	g, open := f.gpus[id], f.open
	if g == nil { // it is not listed any more, and is sampled until the session is renewed
		g = &fakeGPU{err: gpu.ErrLost}
	}
	hang, err, pause := g.hang, g.err, g.pause+g.calls
	g.pause = 0
	if f.opened < g.lostUntil {
		err = gpu.ErrLost
	}
	f.mu.Unlock()
	time.Sleep(pause)
	switch {
	case !open:
		return g, gpu.ErrDriverNotLoaded
	case hang:
		time.Sleep(callLimit)
		return g, gpu.ErrTimeout
	}
	return g, err
}

func (f *fakeLibrary) MIGDevices(_ context.Context, id gpu.UUID) (metrics.Identity, []metrics.MIGDevice, error) {
	g, err := f.at(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	g.rounds++
	return g.identity, slices.Clone(g.devices), err
}

func (f *fakeLibrary) Values(_ context.Context, id gpu.UUID, fields metrics.FieldSet, into *metrics.Values) error {
	g, err := f.at(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	g.asked = fields
	into.Set(metrics.FieldPowerUsage, 100)
	into.Set(metrics.FieldECCUncorrectedVolatile, g.ecc)
	if fields.Has(metrics.FieldClockEventReasons) {
		into.Set(metrics.FieldClockEventReasons, 4)
	}
	if g.sends > 0 {
		into.Set(metrics.FieldNVLinkTransmitted, g.sends*time.Since(g.began).Seconds())
	}
	return err
}

func (f *fakeLibrary) MIGValues(_ context.Context, id gpu.UUID, m *metrics.MIGDevice, _ metrics.FieldSet) error {
	_, err := f.at(id)
	m.Values.Set(metrics.FieldMemoryUsed, 1)
	return err
}

func (f *fakeLibrary) Sample(_ context.Context, id gpu.UUID, target int, _ metrics.FieldSet, baseline bool, into *metrics.Values) error {
	g, err := f.at(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[fmt.Sprint(id, target)] = true
	if last, before := g.sampled[target]; before {
		g.closest = min(g.closest, time.Since(last))
	}
	g.sampled[target] = time.Now()
	if baseline {
		g.baselines[target]++
		return err
	}
	g.compared[target]++
	into.Set(metrics.FieldSMActive, 0.5)
	return err
}

func (f *fakeLibrary) ReleaseSamples(_ context.Context, id gpu.UUID, target int) error {
	_, err := f.at(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.held, fmt.Sprint(id, target))
	}
	return err
}

func (f *fakeLibrary) Processes(_ context.Context, id gpu.UUID, interval time.Duration) (metrics.ProcessList, error) {
	g, err := f.at(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	return metrics.ProcessList{Processes: slices.Clone(g.processes), Hidden: g.hidden, Sampled: interval > 0, Dropped: g.ahead}, err
}

func (f *fakeLibrary) NextXID(_ context.Context, wait time.Duration) (gpu.UUID, metrics.XID, error) {
	f.mu.Lock()
	if len(f.xids) > 0 {
		next := f.xids[0]
		f.xids = f.xids[1:]
		f.mu.Unlock()
		return next.id, next.xid, nil
	}
	err := f.xidErr
	f.mu.Unlock()
	if err == nil {
		time.Sleep(wait)
	}
	return "", metrics.XID{}, err
}

func (f *fakeLibrary) holds(id gpu.UUID, target int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[fmt.Sprint(id, target)]
}

// rounds, asked, baselines and opens count the calls of the driver so far.
func (f *fakeLibrary) rounds(id gpu.UUID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[id].rounds
}

func (f *fakeLibrary) asked(id gpu.UUID) metrics.FieldSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[id].asked
}

func (f *fakeLibrary) baselines(id gpu.UUID, target int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gpus[id].baselines[target]
}

func (f *fakeLibrary) opens() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// fakeProcesses is /proc.
type fakeProcesses struct {
	mu   sync.Mutex
	list map[uint32]metrics.ProcessIdentity
	// hides reports another pid namespace.
	hides bool
}

func (p *fakeProcesses) HidesProcesses() bool { return p.hides }

func (p *fakeProcesses) Identify([]uint32) map[uint32]metrics.ProcessIdentity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.list)
}

// pending counts the MIG devices that will be destroyed soon.
func (s *Sampler) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.releases)
}

// wants are the requests of claims.
type wants struct {
	mu   sync.Mutex
	list []Want
}

func (w *wants) of(gpu.UUID) []Want {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func (w *wants) set(list ...Want) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = list
}

// started is a sampler that runs in a bubble of synctest until the test ends.
func started(t *testing.T, opts Options) *Sampler {
	t.Helper()
	s := New(opts)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// pass advances time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// gpuOf is a GPU of the snapshot.
func gpuOf(t *testing.T, s *Sampler, id gpu.UUID) *metrics.GPU {
	t.Helper()
	for _, g := range s.Snapshot().GPUs {
		if g.Identity.UUID == id {
			return g
		}
	}
	require.Fail(t, "the snapshot has no such GPU", string(id))
	return nil
}
