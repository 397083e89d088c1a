package lifecycle

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// The driver is unloaded under prepared claims, and the plugin is restarted without it.
func TestUnprepare_DriverUnavailable_Ends(t *testing.T) {
	t.Parallel()
	m, err := NewMachine(t.TempDir(), "l40s", 2)
	require.NoError(t, err)
	w := Wiring{CallTimeout: 10 * time.Minute, CleanupAfter: 2 * time.Minute, Effects: withEffects}
	p, err := m.Start(t.Context(), w)
	require.NoError(t, err)
	plain, effects := Allocate(claimNumber(0), m.devices()[0]), Allocate(claimNumber(1), m.devices()[1])
	for _, rc := range []*resourceapi.ResourceClaim{plain, effects} {
		_, err := p.Prepare(t.Context(), rc)
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	m.Node.Unload()

	// The caller cancels the first call after the second try.
	refused, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var tries atomic.Int32
	w.FaultPoint = func(_ string, effect func() error) error {
		err := effect()
		if errors.Is(err, gpu.ErrDriverNotLoaded) {
			if tries.Add(1) == 2 {
				giveUp()
			}
		}
		return err
	}
	p, err = m.Start(t.Context(), w)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for _, rc := range []*resourceapi.ResourceClaim{plain, effects} {
		_, err := p.Prepare(t.Context(), rc)
		require.NoError(t, err, "a prepared claim keeps its result")
	}
	require.NoError(t, p.Unprepare(t.Context(), "uid-0"), "without effects the driver is not used")
	tries.Store(0)
	require.ErrorIs(t, p.Unprepare(refused, "uid-1"), gpu.ErrDriverNotLoaded)
	assert.GreaterOrEqual(t, tries.Load(), int32(2))
	m.Advance(2 * time.Minute)
	require.NoError(t, p.Unprepare(t.Context(), "uid-1"), "Unprepare succeeds although the cleanup is pending")
	_, pending := p.Counts()
	assert.Equal(t, 1, pending)

	version, _ := m.Node.Driver()
	require.NoError(t, m.Node.Load(version))
	require.NoError(t, p.Refresh(t.Context()))
	_, err = p.Prepare(t.Context(), Allocate(claimNumber(3), m.devices()[1]))
	require.NoError(t, err, "the next claim on the GPU completes the cleanup")
	require.NoError(t, m.CheckInvariants(t.Context(), "uid-3"))
	require.NoError(t, p.Unprepare(t.Context(), "uid-3"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// NVML hangs for one GPU.
func TestPrepare_NVMLHangsForOneGPU_OthersUnaffected(t *testing.T) {
	t.Parallel()
	m, processes := twoProcesses(t, 2, Wiring{CallTimeout: 10 * time.Minute, Effects: withEffects})
	id, err := m.Node.Faults.Add(model.Fault{Call: "nvmlDeviceSetPersistenceMode", GPU: 0, Effect: model.EffectHang})
	require.NoError(t, err)
	hanging := make(chan error, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() {
		_, err := processes[0].Prepare(ctx, Allocate(claimNumber(1), m.devices()[0]))
		hanging <- err
	}()
	require.Eventually(t, func() bool { return m.Node.Faults.List()[0].Hits > 0 }, 10*time.Minute, time.Millisecond)
	_, err = processes[1].Prepare(t.Context(), Allocate(claimNumber(2), monitor))
	require.NoError(t, err, "a monitor device does not wait for a GPU")
	require.NoError(t, processes[1].Unprepare(t.Context(), "uid-2"))
	for n := range 20 {
		rc := Allocate(claimNumber(10+2*n+1), m.devices()[1])
		_, err := processes[n%2].Prepare(t.Context(), rc)
		require.NoError(t, err)
		require.NoError(t, processes[n%2].Unprepare(t.Context(), string(rc.UID)))
	}
	select {
	case err := <-hanging:
		require.Fail(t, "the call does not hang", "%v", err)
	default: // the others did not wait for it
	}
	giveUp()
	require.Error(t, <-hanging)
	require.True(t, m.Node.Faults.Remove(id))
	require.NoError(t, processes[1].Unprepare(t.Context(), "uid-1"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// The test counts the fault points of the machine.
func TestPrepare_Claim_FaultPointCounts(t *testing.T) {
	t.Parallel()
	m, err := NewMachine(t.TempDir(), "l40s", 1)
	require.NoError(t, err)
	sites := map[string]int{}
	p, err := m.Start(t.Context(), Wiring{Effects: withEffects, FaultPoint: func(site string, effect func() error) error {
		sites[site]++
		return effect()
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	cost := func(do func() error) map[string]int {
		t.Helper()
		clear(sites)
		require.NoError(t, do())
		for _, read := range []string{"disk.Read records", "disk.Read specs", "disk.List records", "lock.Claim", "lock.GPUs"} {
			delete(sites, read)
		}
		return sites
	}
	prepare := func(n int) func() error {
		return func() error {
			_, err := p.Prepare(t.Context(), Allocate(claimNumber(n), m.devices()[0]))
			return err
		}
	}
	const written, renamed, synced = "disk.Write records", "disk.Rename records", "disk.SyncDir records"
	spec := map[string]int{"disk.Write specs": 1, "disk.Rename specs": 1}
	with := func(more map[string]int) map[string]int {
		all := map[string]int{}
		for _, part := range []map[string]int{spec, more} {
			for site, n := range part {
				all[site] += n
			}
		}
		return all
	}
	assert.Equal(t, with(map[string]int{written: 1, renamed: 1, synced: 1}), cost(prepare(2)), "one durable write")
	assert.Empty(t, cost(prepare(2)), "a repeated Prepare writes nothing")
	removed := map[string]int{"disk.Remove specs": 2, "disk.Remove records": 2, synced: 1}
	assert.Equal(t, removed, cost(func() error { return p.Unprepare(t.Context(), "uid-2") }), "one removal, made durable")

	effects := map[string]int{written: 2, renamed: 2, synced: 2, "step.Do accounting": 1, "step.Do persistence": 1}
	assert.Equal(t, with(effects), cost(prepare(3)), "two durable writes with effects")
	assert.Empty(t, cost(prepare(3)))
	removed[written], removed[renamed], removed[synced] = 1, 1, 2
	removed["step.Undo accounting"], removed["step.Undo persistence"] = 1, 1
	assert.Equal(t, removed, cost(func() error { return p.Unprepare(t.Context(), "uid-3") }), "two durable changes")
	require.NoError(t, m.CheckEmpty(t.Context()))
}
