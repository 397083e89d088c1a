package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds returns n seeds, or LIFECYCLE_SEED, which a failed run prints, or LIFECYCLE_RUNS seeds.
func seeds(t *testing.T, n uint64) (seeds []uint64) {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		if os.Getenv(name) == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		require.NoError(t, err, name)
		return n
	}
	if os.Getenv("LIFECYCLE_SEED") != "" {
		return []uint64{number("LIFECYCLE_SEED", 0)}
	}
	for seed := range number("LIFECYCLE_RUNS", n) {
		seeds = append(seeds, seed)
	}
	return seeds
}

// Random calls are made to two processes that are killed at random fault points and restarted, with reboots.
func TestRandomCalls_KillsAndReboots_InvariantsHold(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(t, 16) {
		t.Run(fmt.Sprintf("LIFECYCLE_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			k := newKubelet(t, seed)
			for range 60 {
				k.step()
				k.checkInvariants()
			}
			for len(k.podClaims) > 0 {
				k.unprepare(k.podClaims[0])
				k.checkInvariants()
			}
			require.NoError(t, k.machine.CheckEmpty(t.Context()))
		})
	}
}

// Random fault points fail, with kills and reboots, until the disk and the hardware work again.
func TestRandomCalls_RandomFaults_InvariantsHold(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(t, 10) {
		t.Run(fmt.Sprintf("LIFECYCLE_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			k := newKubelet(t, seed)
			k.refuse = func(string) error {
				if k.random.IntN(12) == 0 {
					return errors.New("input/output error")
				}
				return nil
			}
			k.start(0)
			k.start(1)
			for range 60 {
				k.step()
				k.checkInvariants()
			}
			k.refuse = nil
			k.start(0)
			k.start(1)
			for len(k.podClaims) > 0 {
				k.unprepare(k.podClaims[0])
				k.checkInvariants()
			}
			require.NoError(t, k.machine.CheckEmpty(t.Context()))
		})
	}
}

// step makes one random event happen on the node.
func (k *kubelet) step() {
	k.t.Helper()
	what := k.random.IntN(20)
	if len(k.podClaims) == 0 || what < 6 {
		k.create()
		return
	}
	l := k.podClaims[k.random.IntN(len(k.podClaims))]
	switch {
	case what < 12:
		if !l.gone {
			k.prepare(l)
		}
	case what < 15:
		k.unprepare(l)
	case what < 16:
		l.gone, l.answer = true, nil
	case what < 17:
		k.reallocate(l)
	case what < 19:
		k.start(k.random.IntN(len(k.plugins)))
	default:
		k.reboot()
	}
}

// reallocate deallocates a claim without pods and allocates it for another pod: same UID, other devices. Its old result is void.
func (k *kubelet) reallocate(l *podClaim) {
	before, answered := l.devices, l.answer
	if l.gone {
		return
	}
	k.allocate(l)
	if l.devices == nil {
		l.devices, l.rc = before, k.machine.allocate(l.rc, before...)
		return
	}
	l.answer = nil
	if answered != nil {
		// The old devices belong to the old pod until Prepare or Unprepare reports its end.
		k.prepareOrUnprepare(l)
	}
}

func (k *kubelet) prepareOrUnprepare(l *podClaim) {
	k.t.Helper()
	k.prepare(l)
	if l.answer == nil {
		k.unprepare(l)
	}
}
