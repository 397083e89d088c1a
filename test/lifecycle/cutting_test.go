package lifecycle

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// TestASliceThatWillNotDie is a debt of that slice alone: its neighbours come and go, and what overlaps it waits until the process
// on it has ended.
func TestASliceThatWillNotDie(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	var owed []gpu.PendingCleanup
	p, err := m.Start(t.Context(), Wiring{
		Patience: 2 * time.Second, DebtAfter: 2 * time.Minute, PendingCleanups: func(debts []gpu.PendingCleanup) { owed = debts },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	stuck, err := p.Prepare(t.Context(), m.claim(cuts("stuck", large)))
	require.NoError(t, err)
	_, err = p.Prepare(t.Context(), m.claim(cuts("neighbour", small)))
	require.NoError(t, err)
	release, err := m.Node.Hold(string(stuck.Results[0].MIG.Identity.UUID))
	require.NoError(t, err)

	require.ErrorIs(t, p.Unprepare(t.Context(), "stuck"), gpu.ErrInUse)
	m.Advance(2 * time.Minute)
	require.NoError(t, p.Unprepare(t.Context(), "stuck"), "the pod may go")
	assert.Equal(t, []gpu.PendingCleanup{{GPU: m.gpus[3], Uses: []gpu.Use{stuck.Results[0].Use()}}}, owed)
	require.NoError(t, m.Laws(t.Context(), "neighbour"))

	_, err = p.Prepare(t.Context(), m.claim(cuts("other", medium)))
	require.NoError(t, err, "what does not overlap it can be made")
	require.NoError(t, p.Unprepare(t.Context(), "neighbour"))
	require.NoError(t, p.Unprepare(t.Context(), "other"))
	_, err = p.Prepare(t.Context(), m.claim(cuts("next", large)))
	require.ErrorContains(t, err, "after an earlier claim is still pending")
	_, err = p.Prepare(t.Context(), m.claim(prepares("whole", 3)))
	require.ErrorContains(t, err, "after an earlier claim is still pending")
	require.NoError(t, m.Laws(t.Context()))

	release()
	_, err = p.Prepare(t.Context(), m.claim(prepares("whole", 3)))
	require.NoError(t, err, "the debt is paid when its GPU is needed")
	assert.Empty(t, owed)
	require.NoError(t, m.Laws(t.Context(), "whole"))
	require.NoError(t, p.Unprepare(t.Context(), "whole"))
	require.NoError(t, m.Empty(t.Context()))
}

// TestASliceHoldsNoPodHostage: the driver goes away under it, takes it along, and comes back.
func TestASliceHoldsNoPodHostage(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	p, err := m.Start(t.Context(), Wiring{Patience: 300 * time.Millisecond, DebtAfter: 2 * time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for claim, s := range map[string]Slice{"stays": large, "goes": small} {
		_, err := p.Prepare(t.Context(), m.claim(cuts(claim, s)))
		require.NoError(t, err)
	}
	m.Node.Unload()
	require.Error(t, p.Refresh(t.Context()))
	require.ErrorIs(t, p.Unprepare(t.Context(), "goes"), gpu.ErrDriverNotLoaded)
	m.Advance(2 * time.Minute)
	require.NoError(t, p.Unprepare(t.Context(), "goes"), "the pod may go")
	_, debts := p.Counts()
	assert.Equal(t, 1, debts)

	require.NoError(t, m.forget())
	require.NoError(t, p.Refresh(t.Context()))
	require.NoError(t, m.administer(t.Context(), small), "somebody else makes what was there")
	require.NoError(t, p.Recover(t.Context()))
	require.NoError(t, m.Laws(t.Context()), "the debt is paid, and the administrator's slice stays")
	_, err = p.Prepare(t.Context(), m.claim(cuts("stays", large)))
	require.NoError(t, err)
	require.NoError(t, m.Laws(t.Context(), "stays"))
	require.NoError(t, p.Unprepare(t.Context(), "stays"))
	require.NoError(t, m.Empty(t.Context()))
}

// TestAnAdministratorIsFaster: the place was free when it was looked at, and is not when the instance is to be made there.
func TestAnAdministratorIsFaster(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	var first sync.Once
	p, err := m.Start(t.Context(), Wiring{Patience: impatience, DebtAfter: time.Minute, Touch: func(site string, effect func() error) error {
		var made error
		if site == "nvml.CreateInstance" {
			first.Do(func() { made = m.administer(t.Context(), large) })
		}
		return errors.Join(made, effect())
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	_, err = p.Prepare(t.Context(), m.claim(cuts("a", large)))
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.NoError(t, m.Laws(t.Context()), "it is the administrator's")
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, m.Empty(t.Context()))
}

// TestASliceThatTakesTooLong is taken back, and whoever reads why is not told to give up.
func TestASliceThatTakesTooLong(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	p, err := m.Start(t.Context(), Wiring{Patience: impatience})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for _, latency := range []model.MIGLatency{
		{SetMode: time.Minute}, {CreateGPUInstance: time.Minute}, {CreateComputeInstance: time.Minute},
	} {
		m.Node.SetMIGLatency(latency)
		_, err = p.Prepare(t.Context(), m.claim(cuts("a", large)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "(will be retried)")
		require.NoError(t, m.Empty(t.Context()))
	}
	m.Node.SetMIGLatency(model.MIGLatency{})
	_, err = p.Prepare(t.Context(), m.claim(cuts("a", large)))
	require.NoError(t, err)
	require.NoError(t, p.Unprepare(t.Context(), "a"))
	require.NoError(t, m.Empty(t.Context()))
}

// neighbours kills a process at each touch of a claim's life on a slice, while another one works on the same GPU.
func neighbours(t *testing.T, m *Machine) {
	s := &scenario{acts: []Act{cuts("a", large), unprepares("a")}}
	other := &scenario{acts: []Act{cuts("b", small), unprepares("b"), cuts("b", medium), cuts("b", medium)}}
	for at, killed := 1, true; killed; at++ {
		m.stage(t, &scenario{})
		var mortal, living outcome
		var processes sync.WaitGroup
		processes.Go(func() { mortal = m.spawn(t, order{Acts: s.acts, Die: at, Late: at%2 == 0}) })
		processes.Go(func() { living = m.spawn(t, order{Acts: other.acts}) })
		processes.Wait()
		require.NoError(t, living.asExpected(other), "beside a process that was killed at touch %d", at)
		killed = mortal.killed
		claims := learn(s, mortal.ended)
		claims["b"] = &known{prepare: cuts("b", medium), answered: true}
		if !counted(t, m.afterDeath(t.Context(), claims, at%4 < 2, false), "killed at touch %d beside another process", at) {
			return
		}
	}
}

// TestWhatASliceCosts counts the calls that concern MIG. The mode is changed when a claim needs the other one, and never when a
// claim ends.
func TestWhatASliceCosts(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	sites := map[string]int{}
	p, err := m.Start(t.Context(), Wiring{Touch: func(site string, effect func() error) error {
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
	assert.Equal(t, first, cost(cuts("a", large)))
	assert.Equal(t, map[string]int{one: 1}, cost(cuts("a", large)), "repeated")
	assert.Equal(t, made, cost(cuts("b", small)))
	assert.Equal(t, removed, cost(unprepares("a")))
	assert.Equal(t, removed, cost(unprepares("b")))
	assert.Equal(t, made, cost(cuts("c", medium)), "the mode stays on")
	assert.Equal(t, removed, cost(unprepares("c")))
	off := map[string]int{mode: 1, look: 1, set: 1, "nvml.Driver": 1, "nvml.GPUs": 1}
	assert.Equal(t, off, cost(prepares("d", 3)), "and goes off for the whole GPU, when nothing is on it")
	assert.Empty(t, cost(unprepares("d")))
	assert.Equal(t, map[string]int{mode: 1}, cost(prepares("e", 3)))
	assert.Empty(t, cost(unprepares("e")))
	assert.Equal(t, map[string]int{mode: 1}, cost(shares("f", 3)), "a share costs what the whole GPU does")
	assert.Equal(t, map[string]int{mode: 1}, cost(shares("g", 3)))
	assert.Empty(t, cost(shares("f", 3)), "and nothing when it is there")
	assert.Empty(t, cost(unprepares("f")))
	assert.Empty(t, cost(unprepares("g")))

	require.NoError(t, m.administer(t.Context(), small))
	for range 2 { // looks: what two of them show is an administrator's
		require.NoError(t, p.Refresh(t.Context()))
	}
	assert.Equal(t, map[string]int{one: 1}, cost(cuts("h", small)), "what an administrator made is looked at")
	assert.Equal(t, map[string]int{one: 1}, cost(cuts("h", small)), "repeated")
	assert.Empty(t, cost(unprepares("h")))
	require.NoError(t, m.Empty(t.Context()))
}
