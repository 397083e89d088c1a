package finding

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestXIDs_Tables_EachCodeOnce: of the errors that tenants can cause, none is reported as unknown.
func TestXIDs_Tables_EachCodeOnce(t *testing.T) {
	t.Parallel()
	assert.True(t, slices.IsSortedFunc(harmless, func(a, b codes) int { return int(a.last) - int(b.first) }))
	for _, code := range hardware {
		assert.False(t, isHarmless(code), code)
	}
	for _, code := range []uint64{8, 13, 14, 31, 32, 39, 43, 45, 68, 69, 72, 94, 96, 105, 109, 137, 154} {
		assert.Equal(t, ignored, XIDs{}.decide(code, false), code)
	}
	for _, code := range []uint64{1, 54, 61, 78, 142, 151, 159, 163, 999} {
		assert.Equal(t, unknown, XIDs{}.decide(code, false), code)
	}
}

// TestState_HealFollowedByAnotherProcess_StoredFindingEnds: the process before has followed the command, or not, when it ended.
func TestState_HealFollowedByAnotherProcess_StoredFindingEnds(t *testing.T) {
	t.Parallel()
	command := start.Add(time.Minute)
	for _, stored := range []bool{true, false} {
		both := []*State{NewState(Rules{}), NewState(Rules{})}
		for _, s := range both {
			s.XID(id, 79, start)
		}
		led, next := both[0], both[1]
		if stored { // the next one reads the annotation later
			_, err := led.Heal(id, command)
			require.NoError(t, err)
		} else {
			_, err := next.Heal(id, command)
			require.NoError(t, err)
		}
		next.Merge(led.Save())
		changed, err := next.Heal(id, command)
		require.NoError(t, err)
		assert.True(t, changed)
		assert.Empty(t, next.All())
	}
}
