package prepare

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestPrepare_CallerGone_EffectsUndone at whatever point the caller has gone: undoing uses its own context, and no other request reaches
// the hardware.
func TestPrepare_CallerGone_EffectsUndone(t *testing.T) {
	for _, during := range []string{"ensure", "check", "make", "fill", "build", "put done"} {
		t.Run(during, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w, c := newPartitionable(1)
				p := c.startWithMIG(t)
				ctx, cancel := context.WithCancel(t.Context())
				w.during = func(op string) {
					if strings.HasPrefix(op, during) {
						cancel()
					}
				}
				_, err := p.Prepare(ctx, wantsOf("a", "9-4"))
				if during == "build" || during == "put done" {
					require.NoError(t, err, "all was made by then")
					require.NoError(t, p.Unprepare(t.Context(), "a"))
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				assert.Empty(t, c.there)
				w.clean(t)
			})
		})
	}
}

// TestUnprepare_CallerGone_EffectsStayRecorded: the next call undoes the remaining effects.
func TestUnprepare_CallerGone_EffectsStayRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, c := newPartitionable(1)
		p := c.startWithMIG(t)
		p.mustPrepare(wantsOf("a", "9-4"))
		ctx, cancel := context.WithCancel(t.Context())
		w.during = func(op string) {
			if strings.HasPrefix(op, "undo") {
				cancel()
			}
		}
		require.ErrorIs(t, p.Unprepare(ctx, "a"), context.Canceled)
		assert.Len(t, c.there, 1)
		assert.NotNil(t, w.record(t, "a"))
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Empty(t, c.there)
		w.clean(t)
	})
}

// refusing is a need that is not met the first times.
type refusing struct {
	times int
	err   error
}

func (n *refusing) Ensure(ctx context.Context, _ claim.Precondition) error {
	if n.times--; n.times >= 0 {
		return n.err
	}
	return ctx.Err()
}

// TestPrepare_PreconditionFails_Refused: if a need states whether a retry helps, its statement counts, and its error names the necessary
// change.
func TestPrepare_PreconditionFails_Refused(t *testing.T) {
	broken := errors.New("NVML UNKNOWN")
	refusal := func(transient bool) error {
		return &claim.Refusal{Cause: "GPU x could not be inspected: NVML UNKNOWN", Fix: "check nvidia-smi", Transient: transient, Err: broken}
	}
	const named = `request "r0", device gpu-00000000-mig-9-4: `
	for name, c := range map[string]struct {
		err   error
		tries int
		says  string
	}{
		"transient refusal": {refusal(true), 2, named + "GPU x could not be inspected: NVML UNKNOWN; check nvidia-smi (will be retried)"},
		"permanent refusal": {refusal(false), 0, named + "GPU x could not be inspected: NVML UNKNOWN; check nvidia-smi (not retryable)"},
		"transient error":   {gpu.ErrInUse, 2, named + "in use (will be retried)"},
		"permanent error":   {broken, 0, named + "NVML UNKNOWN (will be retried)"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w, c2 := newPartitionable(1)
				p := c2.startWithMIG(t)
				p.Preconditions[claim.PreconditionMIGMode] = &refusing{times: 2, err: c.err}
				_, err := p.Prepare(t.Context(), wantsOf("a", "9-4"))
				if c.tries == 0 {
					require.EqualError(t, err, c.says)
					w.clean(t)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, []string{c.says}, p.retrying)
			})
		})
	}
}
