package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/mps"
)

// mpsModes advertise every GPU whole and for MPS shares, as mpsConfig does.
const mpsModes = "modes: [whole, mps], mps: {replicas: 8, memory: {default: 1Gi}}"

// mpsClaim is the claim for an MPS share of one GPU.
func mpsClaim(i int) Claim {
	return Claim{Namespace: "team", Name: fmt.Sprintf("mps-%d", i), UID: fmt.Sprintf("uid-mps-%d", i)}
}

// countedMPSService is an MPS service whose daemons run as soon as they are started. It counts the calls of each kind.
type countedMPSService struct {
	// dir contains the directories of the daemons.
	dir string

	mu      sync.Mutex
	daemons map[gpu.MPSDaemonID]gpu.MPSDaemon
	calls   map[string]int
}

// below returns the service of a socket; the directories of its daemons are beside the socket.
func (s *countedMPSService) below(socket string) mps.Daemons {
	s.dir = filepath.Join(filepath.Dir(socket), "mps")
	return s
}

// since returns the calls since the last call. Lists of the daemons do not count, as no claim waits for them.
func (s *countedMPSService) since() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = map[string]int{}
	return calls
}

func (*countedMPSService) Probe(ctx context.Context) (problem string, err error) {
	return "", ctx.Err()
}

func (s *countedMPSService) Daemons(ctx context.Context, after int64) ([]gpu.MPSDaemon, int64, error) {
	if after > 0 {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.daemons)), 1, nil
}

func (s *countedMPSService) Start(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, "start", id, spec)
}

func (s *countedMPSService) StartNew(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, "start", id, spec)
}

func (s *countedMPSService) Ensure(ctx context.Context, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	return s.run(ctx, "ensure", id, spec)
}

func (s *countedMPSService) run(ctx context.Context, call string, id gpu.MPSDaemonID, spec gpu.MPSDaemonSpec) (gpu.MPSDaemon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
	for _, mounted := range []string{"client", "shm"} {
		if err := os.MkdirAll(filepath.Join(s.dir, string(id), mounted), 0o700); err != nil {
			return gpu.MPSDaemon{}, err
		}
	}
	d, runs := s.daemons[id]
	if !runs {
		d = gpu.MPSDaemon{ID: id, Spec: spec, State: gpu.MPSRunning, PID: 1, Servers: []int{2}, MultiUser: true, Starts: 1}
		s.daemons[id] = d
	}
	return d, ctx.Err()
}

func (s *countedMPSService) RestoreLimits(ctx context.Context, _ gpu.MPSDaemonID, _ gpu.MPSDaemonSpec) error {
	s.counted("restoreLimits")
	return ctx.Err()
}

func (s *countedMPSService) Limits(ctx context.Context, _ gpu.MPSDaemonID) (gpu.MPSLimitsInForce, error) {
	s.counted("limits")
	return gpu.MPSLimitsInForce{}, ctx.Err()
}

func (s *countedMPSService) Stop(ctx context.Context, id gpu.MPSDaemonID) error {
	s.counted("stop")
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemons, id)
	return ctx.Err()
}

func (s *countedMPSService) counted(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
}

// exactly returns the costs that use up their limits.
func (l Limits) exactly() Costs {
	cost := func(l Limit) Cost {
		return Cost{FileSyncs: l.Durable, DirSyncs: l.Durable, Programs: l.Programs, NVML: l.NVML, Reads: l.Reads, Writes: l.Writes}
	}
	return Costs{Prepare: cost(l.Prepare), Unprepare: cost(l.Unprepare)}
}

// The first share of a GPU starts the control daemon, then its server, in two round trips to the MPS service, and the last stops them in one.
// A share between them takes one round trip to prepare and none to unprepare. The plugin runs no program.
func TestPrepare_MPSShare_CostIsExact(t *testing.T) {
	n := newNode(t, mpsModes)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n.both(ctx, mpsClaim(0)) // a process reads all records when it locks a GPU for the first time
	trips := func(want map[string]int) {
		t.Helper()
		assert.Equal(t, want, n.mps.since(), "round trips to the MPS service")
	}
	measure := func(one Claim, limits Limits, prepare, unprepare map[string]int) {
		t.Helper()
		n.mps.since()
		got := Costs{Prepare: n.cost(func() error { return n.plugin.Prepare(ctx, one) }, getClaim(one))}
		trips(prepare)
		got.Unprepare = n.cost(func() error { return n.plugin.Unprepare(ctx, one) })
		trips(unprepare)
		assert.NoError(t, problems(limits.rows(1, got)...))
		got.Unprepare.FileSyncs = got.Unprepare.Durable() // a removal syncs only its directory
		assert.Empty(t, cmp.Diff(limits.exactly(), got, later))
	}
	for i := range 3 {
		measure(mpsClaim(i*8), FirstShareLimits, map[string]int{"start": 1, "ensure": 1}, map[string]int{"stop": 1})
	}
	require.NoError(t, n.plugin.Prepare(ctx, mpsClaim(800)))
	for i := range 3 {
		measure(mpsClaim(i*8), NextShareLimits, map[string]int{"ensure": 1}, map[string]int{})
	}
	require.NoError(t, n.plugin.Unprepare(ctx, mpsClaim(800)))
}
