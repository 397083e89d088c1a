package prepare

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestPrepare_DisjointMIGDevices_Prepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		for uid, placed := range map[string]string{"a": "9-4", "b": "20-0", "c": "19-1"} {
			p.mustPrepare(wantsOf(uid, placed), placed)
		}
		w.events()
		for _, process := range []*process{p, c.startWithMIG(t)} {
			for placed, want := range map[string]string{
				"19-6": `device ` + migName("19-6") + `: required MIG placement on GPU ` + string(uuid(0)) + ` is still held by another claim`,
				"20-6": `device ` + migName("20-6") + `: required MIG placement on GPU ` + string(uuid(0)) + ` is still held by another claim`,
				"9-0":  `device ` + migName("9-0") + `: required MIG placement on GPU ` + string(uuid(0)) + ` is still held by another claim`,
				"":     `device ` + device(0) + `: GPU ` + string(uuid(0)) + ` is still held by another claim`,
			} {
				_, err := process.Prepare(t.Context(), wantsOf("d", placed))
				require.ErrorContains(t, err, `request "r0", `+want)
				require.ErrorContains(t, err, `names the claim (will be retried)`)
			}
			assert.Empty(t, w.events(), "what is held is not touched")
		}
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		p.mustPrepare(wantsOf("d", "20-6", "19-0"))
		p.mustPrepare(wants("inspect", monitor), "monitoring occupies nothing")
	})
}

func TestPrepare_WholeGPUOwned_MIGDeviceRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, c := newPartitionable(1)
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", ""))
		_, err := p.Prepare(t.Context(), wantsOf("b", "19-6"))
		heldBy(t, err, "a")
	})
}

// TestPrepare_PreflightFails_NothingWritten: nothing was promised yet.
func TestPrepare_PreflightFails_NothingWritten(t *testing.T) {
	for name, c := range map[string]struct {
		refuse  func(string) error
		unknown bool // the kind of precondition
		kind    error
		want    string
		waits   bool
	}{
		"instance of an administrator": {
			refuse: always("check 9-4", gpu.ErrInUse), kind: gpu.ErrInUse, waits: true,
			want: `request "r1", device ` + migName("9-4") + `: in use (will be retried)`,
		},
		"the GPU is in use": {
			refuse: always("ensure", gpu.ErrInUse), kind: gpu.ErrInUse, waits: true,
			want: `request "r0", device ` + migName("19-0") + `: in use (will be retried)`,
		},
		"the mode needs a reset": {
			refuse: always("ensure", &gpu.UnsupportedError{Feature: "turning on the MIG mode", Needs: "a reset"}),
			want:   `request "r0", device ` + migName("19-0") + `: turning on the MIG mode is not supported here: it needs a reset (not retryable)`,
		},
		"a precondition of another version": {
			unknown: true, want: "preparing GPU " + string(uuid(0)) + ": precondition migMode is not supported here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w, driver := newPartitionable(1)
				p := driver.startWithMIG(t)
				w.refuse = c.refuse
				if c.unknown {
					delete(p.Preconditions, claim.PreconditionMIGMode)
				}
				start := time.Now()
				_, err := p.Prepare(t.Context(), wantsOf("a", "19-0", "9-4"))
				require.EqualError(t, err, c.want)
				if c.kind != nil {
					require.ErrorIs(t, err, c.kind)
				}
				assert.Equal(t, c.waits, time.Since(start) == retryBudget)
				for _, event := range w.events() {
					assert.Contains(t, []string{"ensure migMode " + string(uuid(0)), "check 19-0"}, event)
				}
				assert.Empty(t, driver.there)
				w.clean(t)
			})
		})
	}
}

// TestPrepare_MIGDeviceHalfCreated_Undone, and the effects before it, in reverse; each undoing knows the effect that was made.
func TestPrepare_MIGDeviceHalfCreated_Undone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		w.refuse = always("fill 9-4", gpu.ErrPermission)
		_, err := p.Prepare(t.Context(), wantsOf("a", "19-0", "9-4"))
		require.EqualError(t, err, `request "r1", device `+migName("9-4")+`: making mig on GPU `+string(uuid(0))+`: permission denied (will be retried)`)
		assert.Equal(t, []string{
			"ensure migMode " + string(uuid(0)), "check 19-0", "check 9-4", "put intent a", "make 19-0", "fill 19-0", "make 9-4",
			"undo 9-4, made half", "undo 19-0, made MIG-19-0", "remove a", "delete a",
		}, w.events())
		assert.Empty(t, c.there)
		w.clean(t)

		w.refuse = either(always("fill 9-4", gpu.ErrPermission), always("undo 9-4", errStuck))
		_, err = p.Prepare(t.Context(), wantsOf("a", "19-0", "9-4"))
		require.ErrorContains(t, err, "; undoing the effects: undoing mig on GPU "+string(uuid(0))+": it is stuck")
		r := w.record(t, "a")
		assert.Equal(t, checkpoint.Releasing, r.State)
		assert.JSONEq(t, `{"gpuInstance":3,"computeInstance":0}`, string(r.Steps[0].Made), "the next process knows it too")
		w.refuse = nil
		w.events()
		require.NoError(t, c.startWithMIG(t).Recover(t.Context()))
		assert.Contains(t, w.events(), "undo 9-4, made half")
		w.clean(t)
	})
}

// TestPrepare_MIGDeviceVanished_CreatedAgain: the driver was loaded again, and the answer is another one.
func TestPrepare_MIGDeviceVanished_CreatedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		first := p.mustPrepare(wantsOf("a", "9-4"))
		p.mustPrepare(wantsOf("b", "19-0"))
		beside := w.record(t, "b")
		delete(c.there, migName("9-4"))
		w.events()

		w.refuse = always("verify", errDisk)
		_, err := p.Prepare(t.Context(), wantsOf("a", "9-4"))
		require.EqualError(t, err, `request "r0", device `+migName("9-4")+`: input/output error (will be retried)`)
		assert.Equal(t, first, w.record(t, "a"), "what is not known to be gone is kept")
		w.refuse = nil

		node := w.node
		w.node = &gpu.Node{Driver: node.Driver}
		_, err = p.Prepare(t.Context(), wantsOf("a", "9-4"))
		require.Error(t, err)
		assert.Equal(t, first, w.record(t, "a"), "and so is what nothing can take the place of")
		w.node = node
		w.events()

		again := p.mustPrepare(wantsOf("a", "9-4"))
		assert.Equal(t, []string{
			"verify 9-4", "put releasing a", "undo 9-4, made MIG-9-4", "remove a", "delete a",
			"ensure migMode " + string(uuid(0)), "check 9-4", "put intent a", "make 9-4", "fill 9-4", "put done a", "write a",
		}, w.events())
		assert.Equal(t, gpu.MIGUUID("MIG-9-4"), again.Results[0].MIG.Identity.UUID)
		assert.Equal(t, []string{"a-" + migName("9-4") + "-MIG-9-4"}, again.CDI.Devices)
		assert.Equal(t, beside, w.record(t, "b"), "its neighbour stays")
		assert.Contains(t, w.specs["a"], "MIG-9-4")
	})
}

// TestPrepare_StaticMIGDeviceReplaced_Refused: the administrator has partitioned the GPU again and its ids came back. The claim of
// the old MIG device does not get the new one as if it were that, also while the inventory has not been refreshed since.
func TestPrepare_StaticMIGDeviceReplaced_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		c.administer(7, "MIG-one", true)
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", "19-6"))
		first := w.record(t, "a")
		w.events()

		w.refuse = always("inspect", errDisk)
		_, err := p.Prepare(t.Context(), wantsOf("a", "19-6"))
		require.EqualError(t, err, `request "r0", device `+migName("19-6")+`: input/output error; it was pre-created by an administrator `+
			`of the node; nvidia-smi -L shows there the remaining devices (not retryable)`)
		assert.Equal(t, first, w.record(t, "a"), "what is not known to be gone is kept")
		w.refuse = nil

		c.administer(7, "MIG-two", false)
		_, err = p.Prepare(t.Context(), wantsOf("a", "19-6"))
		require.ErrorIs(t, err, gpu.ErrNotFound)
		require.ErrorContains(t, err, `request "r0", device `+migName("19-6")+`: MIG device MIG-one is not on GPU `+string(uuid(0))+` any more: not found; `+
			`it was pre-created by an administrator of the node`)
		assert.Equal(t, first, w.record(t, "a"), "it keeps what it had")
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		_, err = p.Prepare(t.Context(), wantsOf("b", "19-6"))
		require.ErrorIs(t, err, gpu.ErrNotFound, "and a claim that was never prepared gets nothing either")
		w.clean(t)

		time.AfterFunc(10*time.Second, func() { c.administer(7, "MIG-two", true) })
		r := p.mustPrepare(wantsOf("b", "19-6"), "once it was inspected, in the same call")
		assert.Equal(t, []string{"b-" + migName("19-6") + "-MIG-two"}, r.CDI.Devices)
		_, err = p.Prepare(t.Context(), wantsOf("a", "19-6"))
		heldBy(t, err, "b")
	})
}

// TestPrepare_StaticMIGDeviceReplaced_AnsweredAgain, if the inventory knows it.
func TestPrepare_StaticMIGDeviceReplaced_AnsweredAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		c.administer(7, "MIG-one", true)
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", "19-6"))
		c.administer(8, "MIG-two", true)
		w.events()
		r := p.mustPrepare(wantsOf("a", "19-6"))
		assert.Equal(t, []string{"inspect 19-6", "inspect 19-6", "remove a", "delete a", "inspect 19-6", "put done a", "write a"}, w.events())
		assert.Equal(t, gpu.MIGIdentity{GPUInstance: 8, UUID: "MIG-two"}, r.Results[0].MIG.Identity)
		assert.Equal(t, []string{"a-" + migName("19-6") + "-MIG-two"}, r.CDI.Devices)
	})
}

// TestPrepare_CapabilityMissing_Refused cannot be answered, and is undone.
func TestPrepare_CapabilityMissing_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		w.missing[uuid(0)] = errors.New("it is 1:3, and the kernel says 237:302")
		_, err := p.Prepare(t.Context(), wantsOf("a", "9-4"))
		require.EqualError(t, err, `request "r0", device `+migName("9-4")+`: it is 1:3, and the kernel says 237:302; `+
			`check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes (will be retried)`)
		assert.Empty(t, c.there)
		w.clean(t)
	})
}
