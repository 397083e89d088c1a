package prepare

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
)

// withholding starts a process in which GPUs are withheld while that is set.
func withholding(t *testing.T, w *world, withheld *atomic.Bool) *process {
	t.Helper()
	p := w.process(t)
	options := p.options()
	options.Withheld = func() error {
		if withheld.Load() {
			return errConflict
		}
		return nil
	}
	p.run(options)
	return p
}

func set() *atomic.Bool {
	withheld := &atomic.Bool{}
	withheld.Store(true)
	return withheld
}

var errConflict = errors.New("the GPUs of node n0 are withheld")

// TestPrepare_Withheld_NewClaimRefused: it is refused before anything is written, retried within the call, and prepared when nothing
// withholds the GPUs any more.
func TestPrepare_Withheld_NewClaimRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		withheld := set()
		p := withholding(t, w, withheld)
		_, err := p.Prepare(t.Context(), wants("a", device(0)))
		require.EqualError(t, err, `request "r0", device gpu-00000000: the GPUs of node n0 are withheld (will be retried)`)
		refusal, ok := errors.AsType[*claim.Refusal](err)
		require.True(t, ok)
		require.ErrorIs(t, refusal, errConflict)
		assert.Empty(t, w.events())
		w.clean(t)

		time.AfterFunc(retryBudget/2, func() { withheld.Store(false) })
		p.mustPrepare(wants("a", device(0)))
		assert.Len(t, p.retrying, 2, "the claim's status says why it waits, once per call")
	})
}

// TestPrepare_Withheld_RecordAnswered: a claim that is prepared keeps its answer, also after a reboot and when its spec is gone.
func TestPrepare_Withheld_RecordAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		w.steps = []string{"mode"}
		withheld := &atomic.Bool{}
		before := withholding(t, w, withheld).mustPrepare(wants("a", device(0)))
		withheld.Store(true)
		again := withholding(t, w, withheld).mustPrepare(wants("a", device(0)))
		assert.Equal(t, before.CDI, again.CDI)
		delete(w.specs, "a")
		again = withholding(t, w, withheld).mustPrepare(wants("a", device(0)))
		require.NoError(t, whole(w, again))

		w.reboot("boot-2")
		p := withholding(t, w, withheld)
		again = p.mustPrepare(wants("a", device(0)))
		require.NoError(t, whole(w, again))

		_, err := p.Prepare(t.Context(), wants("a", device(1)))
		require.ErrorIs(t, err, errConflict, "another allocation of the claim is a new one")
		require.NoError(t, whole(w, w.record(t, "a")), "and costs nothing that is prepared")
		require.NoError(t, p.Unprepare(t.Context(), "a"))
		w.clean(t)
	})
}

// TestPrepare_Withheld_UnfinishedRecordUndone: no container has used a claim that was not answered.
func TestPrepare_Withheld_UnfinishedRecordUndone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		w.steps = []string{"mode"}
		prepared(t, w)
		w.refuse = nil
		w.records["a"] = rewritten(t, w.record(t, "a"), `"done"`, `"intent"`)
		withheld := set()
		_, err := withholding(t, w, withheld).Prepare(t.Context(), wants("a", device(0)))
		require.ErrorIs(t, err, errConflict)
		w.clean(t)
	})
}

// TestPrepare_Withheld_AdminAccessPrepared: it takes no GPU.
func TestPrepare_Withheld_AdminAccessPrepared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		withheld := set()
		p := withholding(t, w, withheld)
		r := p.mustPrepare(wants("a", device(0)+"!"))
		assert.Equal(t, checkpoint.Done, r.State)
		_, err := p.Prepare(t.Context(), wants("b", device(0)+"!", device(0)))
		require.ErrorContains(t, err, `request "r1"`)
	})
}
