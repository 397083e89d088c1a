package prepare

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// inBubble runs a test whose clock moves only when every goroutine waits.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

func TestPrepare_OtherDriversClaim_NothingWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		rc := wants("a", "nic-0")
		rc.Status.Allocation.Devices.Results[0].Driver = "net.example.com"
		r := w.start(t).mustPrepare(rc)
		assert.Empty(t, r.Results)
		assert.Empty(t, w.events())
	})
}

func TestPrepare_Repeated_SpecVerified(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		r := p.mustPrepare(wants("a", device(0)))
		w.events()
		hit := func(wrote ...string) {
			t.Helper()
			again := p.mustPrepare(wants("a", device(0)))
			assert.Equal(t, r, again)
			assert.ElementsMatch(t, wrote, w.events())
		}
		delete(w.specs, "a")
		hit("write a")
		w.specs["a"] = `{"torn`
		hit("write a")
		w.major = 510
		hit("write a")
		assert.Contains(t, w.specs["a"], `"major":510`, "a driver that was loaded again has other numbers")

		w.noSpecs = gpu.ErrDriverNotLoaded
		hit()
		w.noSpecs, w.missing[uuid(0)] = nil, gpu.ErrNotFound
		hit()

		delete(w.specs, "a")
		start := time.Now()
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.EqualError(t, err, `request "r0", device gpu-00000000: not found; `+
			`check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes (will be retried)`)
		assert.Equal(t, retryBudget, time.Since(start), "the node may still come to have it")
		assert.Equal(t, r, w.record(t, "a"), "and the claim keeps its answer")
	})
}

func TestPrepare_TransientCause_Retried(t *testing.T) {
	for name, spoil := range map[string]func(w *world) (mend func()){
		"no driver": func(w *world) func() {
			w.noSpecs = gpu.ErrDriverNotLoaded
			return func() { w.noSpecs = nil }
		},
		"no device node": func(w *world) func() {
			w.missing[uuid(0)] = gpu.ErrNotFound
			return func() { delete(w.missing, uuid(0)) }
		},
		"no answer": func(w *world) func() {
			w.refuse = always("do partition", gpu.ErrTimeout)
			return func() { w.refuse = nil }
		},
		"device not advertised": func(w *world) func() {
			node := w.node
			w.node = &gpu.Node{}
			return func() { w.node = node }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(1)
				w.steps = []string{"mode", "partition"}
				p := w.start(t)
				mend := spoil(w)
				time.AfterFunc(3*time.Second, func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					mend()
				})
				r := p.mustPrepare(wants("a", device(0)))
				assert.Equal(t, checkpoint.Done, r.State)
				assert.Len(t, p.retrying, 1, "the claim's status says once why it waits")
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				w.clean(t)
			})
		})
	}
}

func TestPrepare_PermanentCause_NotRetried(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(string) error
		lost   bool
		want   string
	}{
		"an effect":  {refuse: always("do partition", gpu.ErrPermission), want: "making partition on GPU " + string(uuid(0)) + ": permission denied"},
		"the intent": {refuse: always("put intent", errDisk), want: "input/output error"},
		"done":       {refuse: always("put done", errDisk), want: "input/output error"},
		"the spec":   {refuse: always("write", errDisk), want: "input/output error"},
		"a lost GPU": {lost: true, want: `request "r0", device gpu-00000000: GPU is lost; ` +
			`check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes (will be retried)`},
	} {
		for _, steps := range [][]string{nil, {"mode", "partition"}} {
			if steps == nil && (name == "an effect" || name == "the intent") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					w := newWorld(1)
					w.steps, w.refuse = steps, c.refuse
					if c.lost {
						w.missing[uuid(0)] = gpu.ErrLost
					}
					p := w.start(t)
					start := time.Now()
					_, err := p.Prepare(t.Context(), wants("a", device(0)))
					require.EqualError(t, err, c.want)
					assert.Zero(t, time.Since(start))
					w.clean(t)
					claims, pending := p.Counts()
					assert.Zero(t, claims+pending)

					w.refuse, w.missing = nil, nil
					p.mustPrepare(wants("a", device(0)), "the next call starts again")
				})
			})
		}
	}
}

func TestPrepare_UnknownStep_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"laser"}
		p := w.start(t)
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "making laser on GPU "+string(uuid(0))+": step laser is not supported here")
	})
}

// TestPrepare_Deadline_AnsweredBefore: the kubelet cancels the call after 45 s, and its Event names no other cause.
func TestPrepare_Deadline_AnsweredBefore(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{
		0: retryBudget, 45 * time.Second: retryBudget, 10 * time.Second: 9 * time.Second, time.Second: 900 * time.Millisecond,
	} {
		t.Run(deadline.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(1)
				w.noSpecs = gpu.ErrDriverNotLoaded
				ctx := t.Context()
				if deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
				}
				start := time.Now()
				_, err := w.start(t).Prepare(ctx, wants("a", device(0)))
				require.ErrorIs(t, err, gpu.ErrDriverNotLoaded, "not the deadline")
				assert.Equal(t, want, time.Since(start))
			})
		})
	}
}

func TestPrepare_Cancelled_EffectsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode", "partition"}
		ctx, cancel := context.WithCancel(t.Context())
		w.during = func(op string) {
			if op == "do partition "+string(uuid(0)) {
				cancel()
			}
		}
		_, err := w.start(t).Prepare(ctx, wants("a", device(0)))
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, w.events(), "undo mode "+string(uuid(0)))
		w.clean(t)
	})
}

func TestPrepare_AfterReboot_PreparedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(3)
		w.steps = []string{"mode", "partition"}
		p := w.start(t)
		for i, uid := range []string{"kept", "gone", "torn"} {
			p.mustPrepare(wants(uid, device(i)))
		}
		torn := w.record(t, "torn")
		torn.State = checkpoint.Intent
		require.NoError(t, records{w}.Put(torn))
		w.reboot("boot-2")
		w.events()

		p = w.start(t)
		require.NoError(t, p.Recover(t.Context()))
		assert.Equal(t, []string{"remove torn", "delete torn"}, w.events(), "nothing is undone that a boot has undone, or made before it is asked for")
		r := p.mustPrepare(wants("kept", device(0)))
		assert.Equal(t, []string{"put intent kept", "do mode " + string(uuid(0)), "do partition " + string(uuid(0)), "put done kept", "write kept"}, w.events())
		assert.Equal(t, "boot-2", r.BootID)
		require.NoError(t, p.Unprepare(t.Context(), "gone"))
		assert.Equal(t, []string{"remove gone", "delete gone"}, w.events())
		require.NoError(t, p.Unprepare(t.Context(), "kept"))
		w.clean(t)
	})
}

// TestPrepare_AllocatedAgain_OldEffectsUndone keeps its UID and gets other devices; the earlier answer must not be repeated.
func TestPrepare_AllocatedAgain_OldEffectsUndone(t *testing.T) {
	for _, boot := range []string{"boot-1", "boot-2"} {
		t.Run(boot, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(2)
				w.steps = []string{"mode"}
				p := w.start(t)
				p.mustPrepare(wants("a", device(0)))
				if boot != w.boot {
					w.reboot(boot)
					p = w.start(t)
				}
				w.events()

				_, err := p.Prepare(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: wants("a").ObjectMeta})
				require.ErrorContains(t, err, "the claim is not allocated")
				assert.Empty(t, w.events(), "what cannot be planned costs no claim what it has")

				r := p.mustPrepare(wants("a", device(1)))
				assert.Equal(t, uuid(1), r.Results[0].GPUUUID)
				assert.Empty(t, w.effects[uuid(0)])
				p.mustPrepare(wants("b", device(0)), "the first GPU is free")
			})
		})
	}
}

func TestPrepare_DamagedRecord_OnlyItsClaimFailsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		w.records["b"] = []byte("not a record")
		p.mustPrepare(wants("c", device(1)), "no other claim's business")
		w.records["a"] = w.records["a"][:20]
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorIs(t, err, checkpoint.ErrDamaged)
		require.ErrorContains(t, err, "the next try prepares the claim again")
		p.mustPrepare(wants("a", device(0)))

		w.records["a"] = nil
		w.events()
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, []string{"remove a", "delete a"}, w.events())
		assert.Len(t, p.damaged, 3, "each is reported: a twice, and b when all records were read")
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		require.NoError(t, p.Unprepare(t.Context(), "c"))
		w.clean(t)
	})
}

func TestNew_DamagedRecords_ReportedAndServed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		_, err := w.start(t).Prepare(t.Context(), wants("a", device(0)))
		require.NoError(t, err)
		w.records["b"] = nil
		p := w.start(t)
		assert.Len(t, p.damaged, 1)
		claims, _ := p.Counts()
		assert.Equal(t, 1, claims)

		w.refuse = always("all", errDisk)
		_, _, err = New(p.ports(), p.Transaction.options)
		require.ErrorIs(t, err, errDisk)
	})
}

// TestPrepare_NoEffectsSpecFails_NothingWritten: a claim of an earlier boot keeps its record until it is prepared again.
func TestPrepare_NoEffectsSpecFails_NothingWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.missing[uuid(0)] = errDisk
		_, err := w.start(t).Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "input/output error")
		assert.Empty(t, w.events())
	})
}
