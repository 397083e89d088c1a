package lifecycle

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// refusal is a way in which touches fail.
type refusal struct {
	name string
	err  error
	// of tells which sites it can hit; forEver: all of them from one touch on.
	of      func(site string) bool
	forEver bool
}

func anything(string) bool { return true }

// changing are the sites that need a disk that can be written to.
func changing(site string) bool {
	call, _, _ := strings.Cut(strings.TrimPrefix(site, "disk."), " ")
	return strings.HasPrefix(site, "disk.") && call != "Read" && call != "List" || strings.HasPrefix(site, "hook.")
}

// filling are the sites that need space.
func filling(site string) bool {
	return strings.HasPrefix(site, "disk.Write") || strings.HasPrefix(site, "disk.MakeDir") || strings.HasPrefix(site, "hook.")
}

var refusals = []refusal{
	{name: "once", err: syscall.EIO, of: anything},
	{name: "for ever", err: syscall.EIO, of: anything, forEver: true},
	{name: "disk full", err: syscall.ENOSPC, of: filling, forEver: true},
	{name: "read-only disk", err: syscall.EROFS, of: changing, forEver: true},
}

// TestEveryTouchCanBeRefused refuses each touch of each scenario's life, once and from then on. Calls may fail; nothing may be
// lost, and when all works again everything ends well.
func TestEveryTouchCanBeRefused(t *testing.T) {
	t.Parallel()
	for _, how := range refusals {
		for i := range scenarios {
			s := &scenarios[i]
			t.Run(how.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				m, err := modelledMachine(t.TempDir(), mixed(0))
				require.NoError(t, err)
				refused := 0
				for at := 1; m.refuses(t, s, how, at); at++ {
					refused++
				}
				require.Positive(t, refused)
			})
		}
	}
}

// refuses lives a life in which that touch is refused, and goes on without refusals. It returns false when the life had fewer
// touches of that kind.
func (m *Machine) refuses(t *testing.T, s *scenario, how refusal, at int) bool {
	t.Helper()
	m.stage(t, s)
	var mu sync.Mutex
	touches, site := 0, ""
	p, err := m.Start(t.Context(), Wiring{
		Effects: effectsOf(s.acts), Patience: impatience, DebtAfter: time.Minute,
		Touch: func(where string, effect func() error) error {
			mu.Lock()
			if how.of(where) {
				touches++
			}
			hit := how.of(where) && (touches == at || how.forEver && touches > at)
			if hit && site == "" {
				site = where
			}
			mu.Unlock()
			if hit {
				return fmt.Errorf("%s: %w", where, how.err)
			}
			return effect()
		},
	})
	ended := map[int]error{}
	if err == nil {
		for i, act := range s.acts {
			ended[i] = m.act(t.Context(), p, act)
		}
		require.NoError(t, p.Close())
	} else {
		ended = nil // the kubelet has called nobody
	}
	require.NoError(t, m.afterDeath(t.Context(), learn(s, ended), at%2 == 0, false), "refused %s", site)
	return touches >= at
}

// TestATransientRefusalIsNotSeen: a driver that needs another moment costs the claim that moment.
func TestATransientRefusalIsNotSeen(t *testing.T) {
	t.Parallel()
	for _, site := range []string{"step.Do computeMode", "step.Do persistence", "step.Undo persistence", "step.Undo computeMode"} {
		for _, cause := range []error{gpu.ErrTimeout, gpu.ErrInUse, gpu.ErrDriverNotLoaded} {
			t.Run(site+"/"+cause.Error(), func(t *testing.T) {
				t.Parallel()
				m, err := NewMachine(t.TempDir(), "l40s", 1)
				require.NoError(t, err)
				left := 1
				p, err := m.Start(t.Context(), Wiring{Effects: withEffects, DebtAfter: time.Minute, Touch: func(where string, effect func() error) error {
					if where == site && left > 0 {
						left--
						return cause
					}
					return effect()
				}})
				require.NoError(t, err)
				_, err = p.Prepare(t.Context(), Allocate(claimNumber(1), m.device(0)))
				require.NoError(t, err)
				require.NoError(t, p.Unprepare(t.Context(), "uid-1"))
				require.Zero(t, left)
				require.NoError(t, p.Close())
				require.NoError(t, m.Empty(t.Context()))
			})
		}
	}
}
