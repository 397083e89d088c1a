package prepare

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnprepare_FullDisk_Succeeds: removing needs no space.
func TestUnprepare_FullDisk_Succeeds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		w.refuse = always("put", fmt.Errorf("writing: %w", syscall.ENOSPC))
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)

		w.refuse = nil
		p = prepared(t, w)
		w.refuse = either(always("put", syscall.ENOSPC), always("undo", errStuck))
		require.EqualError(t, p.Unprepare(t.Context(), "a"),
			"undoing partition on GPU "+string(uuid(0))+": it is stuck; remembering that: no space left on device")
	})
}

// TestUnprepare_ReleasingNotStored_NothingUndone: the disk refuses more than new files, so the record would stay.
func TestUnprepare_ReleasingNotStored_NothingUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		w.refuse = either(always("put", errDisk), always("delete", errDisk))
		require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errDisk)
		require.NoError(t, whole(w, w.record(t, "a")))
		w.refuse = nil
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

func TestUnprepare_RecordNotRemoved_Error(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := w.start(t)
		p.mustPrepare(wants("a", device(0)))
		for _, op := range []string{"delete", "load"} {
			w.refuse = always(op, errDisk)
			require.ErrorIs(t, p.Unprepare(t.Context(), "a"), errDisk)
			require.ErrorIs(t, p.Unprepare(t.Context(), "never prepared"), errDisk)
		}
		w.refuse = always("remove", errDisk)
		require.ErrorIs(t, p.Unprepare(t.Context(), "never prepared"), errDisk)
		w.refuse = nil
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

// TestUnprepare_UnknownClaim_LeftoversRemoved: half a record, a spec, a removal that was not made durable.
func TestUnprepare_UnknownClaim_LeftoversRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.specs["a"] = "{}"
		require.NoError(t, w.start(t).Unprepare(t.Context(), "a"))
		assert.Equal(t, []string{"remove a", "delete a"}, w.events())
		w.clean(t)
	})
}
