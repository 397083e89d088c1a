package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHandOff_TwoHolders_LockAlternates(t *testing.T) {
	t.Parallel()
	samples, err := HandOff(t.Context(), t.TempDir(), 40)
	require.NoError(t, err)
	assert.Len(t, samples, 40)
	for _, one := range samples {
		assert.Positive(t, one, "the lock was acquired before it was released")
	}
}

func TestIsAwaited_ProcLocks_OnlyWaitersOfTheFile(t *testing.T) {
	t.Parallel()
	const locks = `1: OFDLCK ADVISORY  WRITE -1 fd:01:4711 8 15
1: -> OFDLCK ADVISORY  WRITE -1 fd:01:4711 8 15
2: FLOCK  ADVISORY  WRITE 12 fd:01:815 0 EOF
`
	assert.True(t, isAwaited([]byte(locks), 4711))
	assert.False(t, isAwaited([]byte(locks), 711), "another file")
	assert.False(t, isAwaited([]byte(locks), 815), "held, not waited for")
}
