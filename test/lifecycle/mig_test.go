package lifecycle

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Only this MIG device has a pending cleanup: others on the GPU are prepared and unprepared, and overlapping ones wait until the process
// that uses it has exited.
func TestUnprepare_MIGDeviceInUse_PendingCleanupOfItAlone(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	var pending []gpu.PendingCleanup
	p, err := m.Start(t.Context(), Wiring{
		CallTimeout: 5 * time.Second, CleanupAfter: 2 * time.Minute, PendingCleanups: func(now []gpu.PendingCleanup) { pending = now },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	stuck, err := p.Prepare(t.Context(), m.claim(preparesMIG("stuck", large)))
	require.NoError(t, err)
	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("neighbour", small)))
	require.NoError(t, err)
	release, err := m.Node.Hold(string(stuck.Results[0].MIG.Identity.UUID))
	require.NoError(t, err)

	require.ErrorIs(t, p.Unprepare(t.Context(), "stuck"), gpu.ErrInUse)
	m.Advance(2 * time.Minute)
	require.NoError(t, p.Unprepare(t.Context(), "stuck"), "Unprepare succeeds although the cleanup is pending")
	assert.Equal(t, []gpu.PendingCleanup{{GPU: m.gpus[3], Uses: []gpu.Use{stuck.Results[0].Use()}}}, pending)
	require.NoError(t, m.CheckInvariants(t.Context(), "neighbour"))

	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("other", medium)))
	require.NoError(t, err, "MIG devices that do not overlap it can be created")
	require.NoError(t, p.Unprepare(t.Context(), "neighbour"))
	require.NoError(t, p.Unprepare(t.Context(), "other"))
	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("next", large)))
	require.ErrorContains(t, err, "after an earlier claim is still pending")
	_, err = p.Prepare(t.Context(), m.claim(prepares("whole", 3)))
	require.ErrorContains(t, err, "after an earlier claim is still pending")
	require.NoError(t, m.CheckInvariants(t.Context()))

	release()
	_, err = p.Prepare(t.Context(), m.claim(prepares("whole", 3)))
	require.NoError(t, err, "the next claim on the GPU completes the cleanup")
	assert.Empty(t, pending)
	require.NoError(t, m.CheckInvariants(t.Context(), "whole"))
	require.NoError(t, p.Unprepare(t.Context(), "whole"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// The driver is unloaded, which destroys the MIG device, and loaded again.
func TestUnprepare_MIGDriverUnavailable_Ends(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	p, err := m.Start(t.Context(), Wiring{CallTimeout: 5 * time.Second, CleanupAfter: 2 * time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for claim, s := range map[string]MIGDevice{"stays": large, "goes": small} {
		_, err := p.Prepare(t.Context(), m.claim(preparesMIG(claim, s)))
		require.NoError(t, err)
	}
	m.Node.Unload()
	require.Error(t, p.Refresh(t.Context()))
	require.ErrorIs(t, p.Unprepare(t.Context(), "goes"), gpu.ErrDriverNotLoaded)
	m.Advance(2 * time.Minute)
	require.NoError(t, p.Unprepare(t.Context(), "goes"), "Unprepare succeeds although the cleanup is pending")
	_, pending := p.Counts()
	assert.Equal(t, 1, pending)

	require.NoError(t, m.reloadDriver())
	require.NoError(t, p.Refresh(t.Context()))
	require.NoError(t, m.createStatic(t.Context(), small), "an administrator creates an identical MIG device")
	require.NoError(t, p.Recover(t.Context()))
	require.NoError(t, m.CheckInvariants(t.Context()), "the cleanup is complete, and the administrator's MIG device stays")
	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("stays", large)))
	require.NoError(t, err)
	require.NoError(t, m.CheckInvariants(t.Context(), "stays"))
	require.NoError(t, p.Unprepare(t.Context(), "stays"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// The MIG device is undone halfway on a full disk. The record says so, and the next process completes it: otherwise the rest of the device
// would count as an administrator's.
func TestUnprepare_FullDiskAndInstanceStays_NextProcessCompletes(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	rc, full := m.claim(preparesMIG("a", large)), false
	p, err := m.Start(t.Context(), Wiring{CallTimeout: 5 * time.Second, CleanupAfter: time.Minute, FaultPoint: func(site string, effect func() error) error {
		switch {
		case full && diskAllocations(site):
			return syscall.ENOSPC
		case full && site == "nvml.DestroyInstance":
			return gpu.ErrInUse
		}
		return effect()
	}})
	require.NoError(t, err)
	_, err = p.Prepare(t.Context(), rc)
	require.NoError(t, err)
	full = true
	require.Error(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, p.Close())

	records, err := m.Records()
	require.NoError(t, err)
	require.Equal(t, checkpoint.Releasing, records["a"].State)
	p, err = m.Start(t.Context(), Wiring{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, m.CheckEmpty(t.Context()))
	_, err = p.Prepare(t.Context(), rc)
	require.NoError(t, err)
	require.NoError(t, m.CheckInvariants(t.Context(), "a"))
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// The placement was free when it was checked, and is taken when the instance is created.
func TestPrepare_AdministratorTakesPlacement_NotTouched(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	var first sync.Once
	p, err := m.Start(t.Context(), Wiring{CallTimeout: 5 * time.Second, CleanupAfter: time.Minute, FaultPoint: func(site string, effect func() error) error {
		var made error
		if site == "nvml.CreateInstance" {
			first.Do(func() { made = m.createStatic(t.Context(), large) })
		}
		return errors.Join(made, effect())
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("a", large)))
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.NoError(t, m.CheckInvariants(t.Context()), "the instance belongs to the administrator")
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// The instance is destroyed again, and the error is marked as retried.
func TestPrepare_MIGCreationTimesOut_RolledBack(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	p, err := m.Start(t.Context(), Wiring{CallTimeout: shortTimeout})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for _, latency := range []model.MIGLatency{
		{SetMode: time.Minute}, {CreateGPUInstance: time.Minute}, {CreateComputeInstance: time.Minute},
	} {
		m.Node.SetMIGLatency(latency)
		_, err = p.Prepare(t.Context(), m.claim(preparesMIG("a", large)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "(will be retried)")
		require.NoError(t, m.CheckEmpty(t.Context()))
	}
	m.Node.SetMIGLatency(model.MIGLatency{})
	// Calls may time out on a busy machine, too; the kubelet tries again.
	for range 100 {
		if _, err = p.Prepare(t.Context(), m.claim(preparesMIG("a", large))); !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	require.NoError(t, err)
	for range 100 {
		if err = p.Unprepare(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	require.NoError(t, err)
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// killBesideOther kills a process at each fault point of a claim with a MIG device, while another one works on the same GPU.
func killBesideOther(t *testing.T, m *Machine) {
	s := &scenario{acts: []Act{preparesMIG("a", large), unprepares("a")}}
	other := &scenario{acts: []Act{preparesMIG("b", small), unprepares("b"), preparesMIG("b", medium), preparesMIG("b", medium)}}
	for at, killed := 1, true; killed; at++ {
		m.setUp(t, &scenario{processes: true})
		var killSwitch, living outcome
		var processes sync.WaitGroup
		processes.Go(func() { killSwitch = m.spawn(t, childSpec{Acts: s.acts, KillAt: at, Late: at%2 == 0}) })
		processes.Go(func() { living = m.spawn(t, childSpec{Acts: other.acts}) })
		processes.Wait()
		require.NoError(t, living.asExpected(other), "concurrently with a process that was killed at fault point %d", at)
		killed = killSwitch.killed
		claims := claimStates(s, killSwitch.ended)
		claims["b"] = &claimState{prepare: preparesMIG("b", medium), answered: true}
		tally.all.Add(1)
		if !countKillPoint(t, m.checkRecovery(t.Context(), claims, at%4 < 2, false), "killed at fault point %d beside another process", at) {
			return
		}
	}
}

// Only NVML calls about MIG are counted. The mode is changed when a claim needs the other mode, and never by Unprepare.
func TestPrepare_MIGDevice_NVMLCallCounts(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	sites := map[string]int{}
	p, err := m.Start(t.Context(), Wiring{FaultPoint: func(site string, effect func() error) error {
		if strings.HasPrefix(site, "nvml.") {
			sites[site]++
		}
		return effect()
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	cost := func(act Act) map[string]int {
		t.Helper()
		clear(sites)
		require.NoError(t, m.act(t.Context(), p, act))
		return maps.Clone(sites)
	}
	const mode, set, look, one = "nvml.MIGMode", "nvml.SetMIGMode", "nvml.Occupied", "nvml.Instance"
	made := map[string]int{mode: 1, look: 1, "nvml.CreateInstance": 1, "nvml.CreateComputeInstance": 1}
	removed := map[string]int{one: 2, "nvml.DestroyComputeInstance": 1, "nvml.DestroyInstance": 1}
	first := maps.Clone(made)
	first[set], first["nvml.Driver"], first["nvml.GPUs"] = 1, 1, 1 // all GPUs are inspected once when a mode has changed
	assert.Equal(t, first, cost(preparesMIG("a", large)))
	assert.Equal(t, map[string]int{one: 1}, cost(preparesMIG("a", large)), "repeated")
	assert.Equal(t, made, cost(preparesMIG("b", small)))
	assert.Equal(t, removed, cost(unprepares("a")))
	assert.Equal(t, removed, cost(unprepares("b")))
	assert.Equal(t, made, cost(preparesMIG("c", medium)), "the mode stays enabled")
	assert.Equal(t, removed, cost(unprepares("c")))
	off := map[string]int{mode: 1, look: 1, set: 1, "nvml.Driver": 1, "nvml.GPUs": 1}
	assert.Equal(t, off, cost(prepares("d", 3)), "the mode is disabled for the whole GPU when there are no instances")
	assert.Empty(t, cost(unprepares("d")))
	assert.Equal(t, map[string]int{mode: 1}, cost(prepares("e", 3)))
	assert.Empty(t, cost(unprepares("e")))
	assert.Equal(t, map[string]int{mode: 1}, cost(shares("f", 3)), "a share needs the same calls as the whole GPU")
	assert.Equal(t, map[string]int{mode: 1}, cost(shares("g", 3)))
	assert.Empty(t, cost(shares("f", 3)), "a prepared share needs no call")
	assert.Empty(t, cost(unprepares("f")))
	assert.Empty(t, cost(unprepares("g")))

	require.NoError(t, m.createStatic(t.Context(), small))
	for range 2 { // two passes: a device that both passes find belongs to an administrator
		require.NoError(t, p.Refresh(t.Context()))
	}
	assert.Equal(t, map[string]int{one: 1}, cost(preparesMIG("h", small)), "a static MIG device is checked")
	assert.Equal(t, map[string]int{one: 1}, cost(preparesMIG("h", small)), "repeated")
	assert.Empty(t, cost(unprepares("h")))
	require.NoError(t, m.CheckEmpty(t.Context()))
}
