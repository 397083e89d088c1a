package prepare

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/test/null"
)

// marks are the effects that the step of the family null makes in a world.
type marks struct{ *world }

func (m marks) Mark(ctx context.Context, id gpu.UUID) error {
	return m.op("mark "+string(id), unlessEnded(ctx, func() error { m.effects[id] = map[string]string{null.StepKind: "marked"}; return nil }))
}

func (m marks) Unmark(ctx context.Context, id gpu.UUID) error {
	return m.op("unmark "+string(id), unlessEnded(ctx, func() error { delete(m.effects, id); return nil }))
}

// startNull starts a process that knows the family null.
func (w *world) startNull(t *testing.T) *process { return w.startNullMode(t, null.Mode{}) }

// startNullMode has GPUs advertised in that mode.
func (w *world) startNullMode(t *testing.T, mode null.Mode) *process {
	t.Helper()
	w.layout = gpu.Layout(nil).WithModes(w.node.GPUs, mode)
	w.families = append(claim.Families(), null.Claims{})
	p := w.process(t)
	p.Steps[null.StepKind] = null.Step{Marks: marks{w}}
	p.specs = realSpecs{specFiles{w}, &cdi.SpecBuilder{
		Present: func() cdi.Present { return cdi.Present{Node: w.node, Common: &specs.ContainerEdits{}, DevRoot: "/"} },
		Stat:    func(string) (int64, int64, error) { return w.major, 0, nil }, Types: []gpu.DeviceType{null.Type},
		Exists: func(string) error { return nil },
	}}
	p.run(p.options())
	return p
}

// wantsNull is a claim of the null devices of both GPUs.
func wantsNull(uid string) *resourceapi.ResourceClaim {
	rc := wants(uid, device(0), device(1))
	for i := range rc.Status.Allocation.Devices.Results {
		r := &rc.Status.Allocation.Devices.Results[i]
		r.Pool, r.Device = nodeName+"/"+r.Device, r.Device+"-null"
	}
	return rc
}

func TestNull_Prepared_SpecAndRecordAndEffect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.startNull(t)
		r := p.mustPrepare(wantsNull("a"))
		assert.Equal(t, null.Type, r.Results[0].Type)
		assert.Len(t, w.effects, 2)
		assert.Len(t, w.edited(t, "a"), 2)
		_, err := p.Prepare(t.Context(), func() *resourceapi.ResourceClaim {
			rc := wants("b", device(0))
			rc.Status.Allocation.Devices.Results[0].Pool += "/" + device(0)
			return rc
		}())
		require.ErrorContains(t, err, "is still held by another claim")
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

// TestNull_Shares_BesideEachOtherAlone: several claims share one device of an added family, and no claim gets the GPU beside them.
func TestNull_Shares_BesideEachOtherAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p := w.startNullMode(t, null.Mode{Replicas: 2})
		for _, uid := range []string{"a", "b"} {
			rc := wantsNull(uid)
			rc.Status.Allocation.Devices.Results = rc.Status.Allocation.Devices.Results[:1]
			rc.Status.Allocation.Devices.Results[0].ShareID = new(types.UID("share-" + uid))
			r := p.mustPrepare(rc)
			assert.Equal(t, &checkpoint.Share{Replicas: 2}, r.Results[0].Share)
		}
		whole := func() error {
			rc := wants("c", device(0))
			rc.Status.Allocation.Devices.Results[0].Pool += "/" + device(0)
			_, err := p.Prepare(t.Context(), rc)
			return err
		}
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		require.ErrorContains(t, whole(), "is still held by another claim")
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		require.NoError(t, whole())
		require.NoError(t, p.Unprepare(t.Context(), "c"))
		w.clean(t)
	})
}

// TestNull_KilledAnywhere_NothingLeaks kills the process before and after each operation of the life of a claim with an added family.
func TestNull_KilledAnywhere_NothingLeaks(t *testing.T) {
	live := func(t *testing.T, w *world) error {
		p := w.startNull(t)
		if _, err := p.Prepare(t.Context(), wantsNull("a")); err != nil {
			return err
		}
		return p.Unprepare(t.Context(), "a")
	}
	var count int
	synctest.Test(t, func(t *testing.T) { w := newWorld(2); require.NoError(t, live(t, w)); count = w.ops })
	for at := 1; at <= count; at++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %t", at, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(2)
					w.dieAt, w.dieLate = at, late
					w.survive(t, func() { _ = live(t, w) })
					w.dieAt = 0
					require.NoError(t, live(t, w))
					w.clean(t)
				})
			})
		}
	}
}
