package prepare

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// TestStep_NewerVersion_Pending: an older plugin cannot undo it, and keeps the record for a plugin that can.
func TestStep_NewerVersion_Pending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		w.refuse = nil
		w.records["a"] = rewritten(t, w.record(t, "a"), `"partition"`, `"laser"`, `"writer"`, `"later":{"x":1},"writer"`)
		const sentence = "step laser is not supported here: it needs version test of the plugin, or a later one, on this node again"
		require.ErrorContains(t, p.Unprepare(t.Context(), "a"), "undoing laser on GPU "+string(uuid(0))+": "+sentence)
		assert.Equal(t, checkpoint.Releasing, w.record(t, "a").State)
		assert.Len(t, w.effects[uuid(0)], 2, "what was made before it stays under it")
		time.Sleep(deferCleanupAfter)
		require.NoError(t, p.Unprepare(t.Context(), "a"), "the pod may go")
		assert.Contains(t, w.record(t, "a").PendingCleanup.Cause, sentence)
		assert.Contains(t, string(w.records["a"]), `"later":{"x":1}`)

		w.records["a"] = rewritten(t, w.record(t, "a"), `"laser"`, `"partition"`) // as the newer version sees it
		require.NoError(t, w.start(t).Recover(t.Context()))
		w.clean(t)
	})
}

// TestSpec_NewerVersion_Kept: an older plugin would leave out the edits of a step that it does not know.
func TestSpec_NewerVersion_Kept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p := prepared(t, w)
		w.refuse = nil
		w.records["a"] = rewritten(t, w.record(t, "a"), `"partition"`, `"laser"`)
		richer := strings.Replace(w.specs["a"], `{"cdiVersion"`, `{"annotations":{"laser":"on"},"cdiVersion"`, 1)
		require.NotEqual(t, w.specs["a"], richer)
		w.specs["a"] = richer
		require.NoError(t, p.Recover(t.Context()))
		r := p.mustPrepare(wants("a", device(0)))
		assert.Equal(t, checkpoint.Done, r.State)
		assert.Equal(t, richer, w.specs["a"])

		delete(w.specs, "a")
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "making the CDI spec of claim default/claim-a: step laser is not supported here: it needs version test of the plugin")
		assert.Empty(t, w.specs)
		assert.Equal(t, checkpoint.Done, w.record(t, "a").State)
	})
}
