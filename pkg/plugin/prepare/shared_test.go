package prepare

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// A claim leaves the effect that another one shares, and the last share of the last claim removes it.
func TestUnprepare_SharedEffect_LastRemovesIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		r := p.mustPrepare(wantsMPS("a", 1024))
		assert.Equal(t, []string{"put intent a", "do a0", "put done a", "write a"}, d.events())
		assert.Equal(t, d.record(t, "a"), r)
		assert.Equal(t, &checkpoint.Share{Replicas: 3, Name: "gpu-2gb"}, r.Results[0].Share)
		assert.JSONEq(t, `{"daemon":"00000000","memoryMiB":1024,"activeThreadPercentage":50}`, string(r.Results[0].Extensions[claim.KindMPS]))
		assert.Equal(t, "a0", r.Steps[0].ShareID)
		p.mustPrepare(wantsMPS("b", 2048, 3072))
		d.events()
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Zero(t, d.reads(), "this process has prepared both")
		assert.Equal(t, []string{"put releasing a", "leave a0", "remove a", "delete a"}, d.events())
		d.serving(t)
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		assert.Equal(t, []string{"put releasing b", "leave b1", "stop b0", "remove b", "delete b"}, d.events())
		d.serving(t)
		d.clean(t)
	})
}

// A claim that another process has prepared since counts, and costs one reading of the records.
func TestUnprepare_EffectSharedByOtherProcess_LeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		old, young := d.startMPS(t), d.startMPS(t)
		old.mustPrepare(wantsMPS("a", 1024))
		young.mustPrepare(wantsMPS("b", 1024))
		d.events()
		require.NoError(t, old.Unprepare(t.Context(), "a"))
		assert.Equal(t, 1, d.reads())
		assert.Contains(t, d.events(), "leave a0")
		require.NoError(t, old.Unprepare(t.Context(), "b"))
		assert.Contains(t, d.events(), "stop b0")
		d.serving(t)
		d.clean(t)
	})
}

// TestShared_KilledAnywhere_ServedAsLongAsNeeded kills a process before and after each operation of two claims that share an effect.
func TestShared_KilledAnywhere_ServedAsLongAsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for dieAt, alive := 1, false; !alive; dieAt++ {
			for _, late := range []bool{false, true} {
				for after, again := range map[string]bool{"recovers": false, "the calls come again": true} {
					d := newDaemons()
					p := d.startMPS(t)
					d.ops, d.dieAt, d.dieLate = 0, dieAt, late
					alive = d.survive(t, func() {
						for _, rc := range []*claimObject{wantsMPS("a", 1024), wantsMPS("b", 1024, 1024)} {
							p.mustPrepare(rc)
						}
						require.NoError(t, p.Unprepare(t.Context(), "a"))
						require.NoError(t, p.Unprepare(t.Context(), "b"))
					})
					d.dieAt = 0
					d.serving(t)
					p = d.startMPS(t)
					if !again {
						require.NoError(t, p.Recover(t.Context()), after)
						d.serving(t)
					}
					for _, uid := range []string{"b", "a"} {
						require.NoError(t, p.Unprepare(t.Context(), uid))
						d.serving(t)
					}
					d.clean(t)
				}
			}
		}
	})
}

// While a record cannot be read the effect may be that claim's: it stays, and the pod is not kept for ever.
func TestUnprepare_SharedEffectAndUnreadableRecord_PendingCleanup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		for _, uid := range []string{"a", "b"} {
			p.mustPrepare(wantsMPS(uid, 1024))
		}
		d.hidden = "b"
		p = d.startMPS(t)
		err := p.Unprepare(t.Context(), "a")
		require.ErrorContains(t, err, "the claims that hold the GPU cannot be read now")
		_, unknown := errors.AsType[*ownership.UnknownError](err)
		require.True(t, unknown)
		require.True(t, d.running[uuid(0)])
		assert.Equal(t, checkpoint.Releasing, d.record(t, "a").State)
		time.Sleep(deferCleanupAfter)
		require.NoError(t, p.Unprepare(t.Context(), "a"), "the pod may go")
		require.True(t, d.running[uuid(0)])
		d.hidden = ""
		d.events()
		require.NoError(t, p.Recover(t.Context()))
		assert.Contains(t, d.events(), "leave a0")
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		d.serving(t)
		d.clean(t)
	})
}

// The record of an effect counts in every state, but not after a reboot.
func TestUnprepare_OtherRecordOfSharedEffect_CountsInItsBoot(t *testing.T) {
	for state, want := range map[checkpoint.State]string{
		checkpoint.Intent: "leave a0", checkpoint.Done: "leave a0", checkpoint.Releasing: "leave a0", "of an earlier boot": "stop a0", "without the step": "stop a0",
		"of a later state": "leave a0",
	} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := newDaemons()
				p := d.startMPS(t)
				for _, uid := range []string{"a", "b"} {
					p.mustPrepare(wantsMPS(uid, 1024))
				}
				other := d.record(t, "b")
				switch state {
				case "of an earlier boot":
					other.BootID = "boot-0"
				case "without the step":
					other.State, other.Steps = checkpoint.Releasing, nil
				case "of a later state":
				default:
					other.State = state
				}
				if state == "of a later state" {
					d.records["b"] = ofNewerSchema(fmt.Appendf(nil, `{"claim":{"uid":"b"},"state":["x"],"results":[{"gpuUUID":%q}]}`, uuid(0)))
				} else {
					require.NoError(t, records{d.world}.Put(other))
				}
				p = d.startMPS(t)
				d.events()
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				assert.Contains(t, d.events(), want)
			})
		})
	}
}

// A Prepare that fails leaves the effect to the claims that share it; the only one takes its own back.
func TestPrepare_SharedEffectFails_OthersKeepTheirs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		d.refuse = always("do b1", errCrashed)
		_, err := p.Prepare(t.Context(), wantsMPS("b", 1024, 1024))
		require.ErrorIs(t, err, errCrashed)
		assert.Equal(t, []string{"put intent b", "do b0", "leave b1", "stop b0", "remove b", "delete b"}, d.events())
		p.mustPrepare(wantsMPS("a", 1024))
		d.events()
		_, err = p.Prepare(t.Context(), wantsMPS("b", 1024, 1024))
		require.ErrorIs(t, err, errCrashed)
		assert.Equal(t, []string{"put intent b", "do b0", "leave b1", "leave b0", "remove b", "delete b"}, d.events())
		d.serving(t)
	})
}

// A share whose effect cannot be removed keeps it for the others of its claim that were not undone, and is the last one afterwards.
func TestUnprepare_LastShareFails_StaysTheLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		p.mustPrepare(wantsMPS("a", 1024, 1024))
		d.refuse = always("stop", errStuck)
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errStuck)
		require.Len(t, d.record(t, "a").Steps, 1)
		p.mustPrepare(wantsMPS("b", 1024), "other shares are not blocked")
		d.refuse = nil
		d.events()
		require.NoError(t, p.Recover(t.Context()))
		assert.Contains(t, d.events(), "leave a0", "the next claim has the effect now")
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		d.serving(t)
		d.clean(t)
	})
}

// A record whose removal fails may be gone, and its effect is undone in any case: it does not keep the last claim from removing it.
func TestUnprepare_RemovalOfOtherRecordFailed_LastRemovesEffect(t *testing.T) {
	for name, late := range map[string]bool{"not removed": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := newDaemons()
				p := d.startMPS(t)
				for _, uid := range []string{"a", "b"} {
					p.mustPrepare(wantsMPS(uid, 1024))
				}
				d.refuse = times(1, "delete a", errDisk)
				if late {
					d.refuse, d.spoil = nil, times(1, "delete a", errDisk)
				}
				require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errDisk)
				require.NoError(t, p.Unprepare(t.Context(), "b"))
				assert.Empty(t, d.running)
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				d.clean(t)
			})
		})
	}
}

// The collector removes an effect that no record has, and no other.
func TestCollect_SharedEffect_RemovedWithoutRecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		for _, uid := range []string{"a", "b"} {
			p.mustPrepare(wantsMPS(uid, 1024))
		}
		for _, uid := range []string{"a", "b"} {
			removed := p.mustCollect(nil, true)
			require.Empty(t, removed)
			require.True(t, d.running[uuid(0)])
			delete(d.records, uid)
			delete(d.specs, uid)
		}
		removed := p.mustCollect(nil, true)
		assert.Equal(t, []string{"effect: mps on GPU " + string(uuid(0))}, names(removed))
		assert.Empty(t, d.running)
	})
}

// Shares are counted again from the records: a claim may still hold shares that the scheduler counts as free.
func TestPrepare_SharesOfOthersHeld_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		held, wanted []int
		cause        string
	}{
		"memory": {[]int{4096}, []int{1024, 2048}, "7168 MiB"},
		"shares": {[]int{512, 512}, []int{512, 512}, "the GPU would have 4 MPS shares, and may have 3"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d := newDaemons()
				p := d.startMPS(t)
				p.mustPrepare(wantsMPS("a", c.held...))
				d.events()
				_, err := p.Prepare(t.Context(), wantsMPS("b", c.wanted...))
				refusal, refused := errors.AsType[*claim.Refusal](err)
				require.True(t, refused, "%v", err)
				assert.True(t, refusal.Transient)
				assert.Equal(t, mpsShare, refusal.Device)
				assert.Contains(t, refusal.Cause, c.cause)
				assert.Contains(t, refusal.Cause, ": other claims still hold theirs")
				assert.Equal(t, []any{"heldBy", "default/claim-a", "heldByUID", "a"}, LogValues(err))
				assert.Empty(t, d.events(), "nothing was touched")

				prepared := make(chan error)
				go func() {
					_, err := p.Prepare(t.Context(), wantsMPS("b", c.wanted...))
					prepared <- err
				}()
				synctest.Wait()
				before := time.Now()
				require.NoError(t, p.Unprepare(t.Context(), "a"))
				require.NoError(t, <-prepared)
				assert.Equal(t, before, time.Now(), "the release woke it")
				p.mustPrepare(wantsMPS("b", c.wanted...), "its own shares do not count")
			})
		})
	}
}

// A share that belongs to a claim's pending cleanup is counted, and a share that is cleaned up is not.
func TestPrepare_SharesBeingReleased_Counted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newDaemons()
		p := d.startMPS(t)
		for _, uid := range []string{"a", "b"} {
			p.mustPrepare(wantsMPS(uid, 3072))
		}
		d.refuse = always("leave a0", errStuck)
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errStuck)
		_, err := p.Prepare(t.Context(), wantsMPS("c", 1024))
		require.ErrorContains(t, err, ": other claims still hold theirs")
		assert.Contains(t, LogValues(err), "a", "the one that is being released")
		d.refuse = nil
		require.NoError(t, p.Recover(t.Context()))
		p.mustPrepare(wantsMPS("c", 1024))
	})
}
