package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds are n, or the one of LIFECYCLE_SEED, which a failed run names, or as many as LIFECYCLE_RUNS says.
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

// TestRandomLivesKeepTheLaws runs claims through random calls on two processes that are killed at random touches, started
// anew, and lose their machine.
func TestRandomLivesKeepTheLaws(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(t, 16) {
		t.Run(fmt.Sprintf("LIFECYCLE_SEED=%d", seed), func(t *testing.T) {
			t.Parallel()
			k := newKubelet(t, seed)
			for range 60 {
				k.step()
				k.laws()
			}
			for len(k.lives) > 0 {
				k.unprepare(k.lives[0])
				k.laws()
			}
			require.NoError(t, k.machine.Empty(t.Context()))
		})
	}
}

// TestRandomRefusalsKeepTheLaws refuses touches at random, kills and reboots included, until the disk and the hardware work
// again.
func TestRandomRefusalsKeepTheLaws(t *testing.T) {
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
				k.laws()
			}
			k.refuse = nil
			k.start(0)
			k.start(1)
			for len(k.lives) > 0 {
				k.unprepare(k.lives[0])
				k.laws()
			}
			require.NoError(t, k.machine.Empty(t.Context()))
		})
	}
}

// step does one thing that happens on a node.
func (k *kubelet) step() {
	k.t.Helper()
	what := k.random.IntN(20)
	if len(k.lives) == 0 || what < 6 {
		k.create()
		return
	}
	l := k.lives[k.random.IntN(len(k.lives))]
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
		k.allocateAnew(l)
	case what < 19:
		k.start(k.random.IntN(len(k.plugins)))
	default:
		k.reboot()
	}
}

// allocateAnew deallocates a claim whose pods are gone and gives it to another pod: same UID, other devices. Its old answer
// holds no more.
func (k *kubelet) allocateAnew(l *life) {
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
		// The old devices stay the old pod's until its end is told by Prepare or Unprepare.
		k.prepareOrUnprepare(l)
	}
}

func (k *kubelet) prepareOrUnprepare(l *life) {
	k.t.Helper()
	k.prepare(l)
	if l.answer == nil {
		k.unprepare(l)
	}
}
