package prepare

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// prechecked is a step whose Precheck and Check are both recorded.
type prechecked struct{ *migDriver }

func (p prechecked) Precheck(ctx context.Context, s checkpoint.Step) error {
	return p.op("precheck "+short(s), unlessEnded(ctx, func() error { return nil }))
}

// TestPrepare_PrecheckRefuses_NoModeChanged: the MIG mode of a GPU is not changed for a claim that cannot be prepared.
func TestPrepare_PrecheckRefuses_NoModeChanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		p.Steps[claim.StepMIG] = prechecked{c}
		w.refuse = always("precheck 9-4", gpu.ErrPermission)
		_, err := p.Prepare(t.Context(), wantsOf("a", "9-4"))
		require.ErrorIs(t, err, gpu.ErrPermission)
		require.ErrorContains(t, err, migName("9-4"), "the refusal names the device")
		assert.Empty(t, w.events(), "the MIG mode is as it was")

		w.refuse = nil
		p.mustPrepare(wantsOf("a", "9-4"))
		assert.Equal(t, []string{"precheck 9-4", "ensure migMode " + string(uuid(0)), "check 9-4"}, w.events()[:3])
	})
}
