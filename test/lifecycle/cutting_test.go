package lifecycle

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestASliceThatWillNotDie is a debt of that slice alone: its neighbours come and go, and what overlaps it waits until the process
// on it has ended.
func TestASliceThatWillNotDie(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixed(0))
	require.NoError(t, err)
	var owed []gpu.Debt
	p, err := m.Start(t.Context(), Wiring{
		Patience: 300 * time.Millisecond, DebtAfter: 2 * time.Minute, Owing: func(debts []gpu.Debt) { owed = debts },
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
	assert.Equal(t, []gpu.Debt{{GPU: m.gpus[3], Placements: []gpu.Placement{{Start: 4, Size: 4}}}}, owed)
	require.NoError(t, m.Laws(t.Context(), "neighbour"))

	_, err = p.Prepare(t.Context(), m.claim(cuts("other", medium)))
	require.NoError(t, err, "what does not overlap it can be made")
	require.NoError(t, p.Unprepare(t.Context(), "neighbour"))
	require.NoError(t, p.Unprepare(t.Context(), "other"))
	_, err = p.Prepare(t.Context(), m.claim(cuts("next", large)))
	require.ErrorContains(t, err, "still has what claim default/stuck left")
	_, err = p.Prepare(t.Context(), m.claim(prepares("whole", 3)))
	require.ErrorContains(t, err, "still has what claim default/stuck left")
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
	require.NoError(t, p.Settle(t.Context()))
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
