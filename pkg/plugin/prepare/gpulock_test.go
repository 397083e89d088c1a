package prepare

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWithGPULock_ForeignChange_StillLearned: another process prepared a claim on the GPU. The first call that takes
// the lock learns of that, and the next one has to know it all the same.
func TestWithGPULock_ForeignChange_StillLearned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p, other := w.start(t), w.start(t)
		other.mustPrepare(wants("theirs", device(0)))
		ran := 0
		require.NoError(t, p.WithGPULock(t.Context(), uuid(0), func(context.Context) error { ran++; return nil }))
		_, err := p.Prepare(t.Context(), wants("ours", device(0)))
		heldBy(t, err, "theirs")
		refused := errors.New("refused")
		require.ErrorIs(t, p.WithGPULock(t.Context(), uuid(0), func(context.Context) error { ran++; return refused }), refused)
		assert.Equal(t, 2, ran)
		ended, cancel := context.WithCancel(t.Context())
		release, _, err := p.GPUs(t.Context(), w.record(t, "theirs").LockedGPUs())
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, p.WithGPULock(ended, uuid(0), func(context.Context) error { ran++; return nil }), context.Canceled)
		release()
		assert.Equal(t, 2, ran)
	})
}

// TestPrepare_EveryChange_UnderGPULock: the next claim of the GPU reads the state that was stored before the GPU's lock was released.
func TestPrepare_EveryChange_UnderGPULock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode"}
		var changes []string
		w.during = func(op string) {
			if reads := strings.HasPrefix(op, "load") || strings.HasPrefix(op, "all"); !reads {
				changes = append(changes, op)
				assert.Len(t, w.locks[string(uuid(0))], 1, "%s without the GPU's lock", op)
			}
		}
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		assert.Equal(t, []string{"put intent a", "do mode " + string(uuid(0)), "build a", "put done a", "write a"}, changes)
		changes = nil
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, []string{"put releasing a", "undo mode " + string(uuid(0)), "remove a", "delete a"}, changes)
	})
}
