package prepare

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
)

// noting keeps whether each Undo was the first one.
type noting struct {
	*migDriver

	whole []bool
}

func (n *noting) Undo(ctx context.Context, s checkpoint.Step) error {
	n.whole = append(n.whole, s.Whole)
	return n.migDriver.Undo(ctx, s)
}

// TestUndo_FirstTry_MarkedWhole: then no earlier try has left a part of an effect. Later tries may find such a part, even if the disk
// lacked the space to record it.
func TestUndo_FirstTry_MarkedWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p, n := c.startWithMIG(t), &noting{migDriver: c}
		p.Steps[claim.StepMIG] = n
		p.mustPrepare(wantsOf("a", "19-0"))
		w.refuse = always("undo", errStuck)
		for range 2 {
			require.Error(t, p.rollback.unprepare(t.Context(), "a", time.Now))
		}
		assert.Equal(t, []bool{true, false}, n.whole)
		w.refuse = nil
		require.NoError(t, p.rollback.unprepare(t.Context(), "a", time.Now))

		n.whole = nil
		p.mustPrepare(wantsOf("b", "19-0"))
		w.refuse = either(always("undo", errStuck), always("put releasing", syscall.ENOSPC))
		for range 2 {
			require.Error(t, p.rollback.unprepare(t.Context(), "b", time.Now))
			require.Equal(t, checkpoint.Done, w.record(t, "b").State)
		}
		assert.Equal(t, []bool{true, false}, n.whole)

		n.whole = nil
		w.refuse = always("fill", errStuck)
		_, err := p.Prepare(t.Context(), wantsOf("c", "19-1"))
		require.Error(t, err)
		assert.NotContains(t, n.whole, true, "it never answered")
		w.refuse = nil
		require.NoError(t, p.rollback.unprepare(t.Context(), "b", time.Now))
		w.clean(t)
	})
}
