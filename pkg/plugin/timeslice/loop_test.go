package timeslice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// failTime is the time during which a port fails, and mostRounds the number of tries that the loop may make meanwhile.
	failTime   = 10 * time.Second
	mostRounds = 20
)

var errFails = errors.New("input/output error")

// unreadable is a disk whose files cannot be read.
type unreadable struct{ disk.OS }

func (unreadable) Read(string) ([]byte, error) { return nil, errFails }

// TestRun_PortFails_FewRounds: a loop that cannot set intervals waits before it tries again, and reports why. The layout reports the errors
// of Wanted.
func TestRun_PortFails_FewRounds(t *testing.T) {
	t.Parallel()
	for _, before := range []error{nil, gpu.ErrLost} {
		t.Run(fmt.Sprint("before ", before), func(t *testing.T) { t.Parallel(); portFails(t, before) })
	}
}

// portFails makes a port fail after the tool has failed.
func portFails(t *testing.T, before error) {
	t.Helper()
	for name, fail := range map[string]func(k *configuredNode, r *Reconciler){
		"tool":   func(k *configuredNode, _ *Reconciler) { k.refusal = errFails },
		"store":  func(k *configuredNode, r *Reconciler) { r.Store = NewStore(unreadable{}, k.dir, "boot-1") },
		"wanted": func(k *configuredNode, _ *Reconciler) { k.unknown = errFails },
		"driver": func(k *configuredNode, _ *Reconciler) { k.unknown = gpu.ErrDriverNotLoaded },
		"lock": func(_ *configuredNode, r *Reconciler) {
			r.WithGPULock = func(context.Context, gpu.UUID, func(context.Context) error) error { return errFails }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newConfiguredNode(t)
				k.wanted = intervals("Long", "Short")
				r := k.newReconciler("boot-1")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				rounds, wanted := atomic.Int64{}, r.Wanted
				r.Wanted = func() (map[gpu.UUID]gpu.Interval, error) {
					if rounds.Add(1) > 100*mostRounds {
						stop() // time stands still for a loop that does not wait
					}
					return wanted()
				}
				if before == nil {
					fail(k, r)
				}
				k.refusal = cmp.Or(before, k.refusal)
				ended := make(chan struct{})
				go func() { defer close(ended); r.Run(ctx) }()
				if before != nil {
					k.after(retryFirst / 2)
					k.failed = nil
					k.refusal = nil
					fail(k, r)
				}
				k.after(failTime)
				require.NoError(t, ctx.Err(), "it does not wait")
				stop()
				<-ended
				assert.LessOrEqual(t, rounds.Load(), int64(mostRounds))
				if k.unknown == nil {
					assert.Len(t, k.failed, 2, "each GPU once")
				}
			})
		})
	}
}
