package bench

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two sets of locks on one file exclude each other like two processes.
func TestALockPassesToAndFro(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	toFollower, fromLeader := io.Pipe()
	toLeader, fromFollower := io.Pipe()
	leader, err := newRelay(dir, toLeader, fromLeader)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leader.locks.Close()) })
	follower, err := newRelay(dir, toFollower, fromFollower)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, follower.locks.Close()) })

	require.NoError(t, leader.take(ctx))
	ended := make(chan error, 1)
	go func() { ended <- follower.follow(ctx, 20) }()
	samples, err := leader.lead(ctx, 20)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	assert.Len(t, samples, 40)
	for _, one := range samples {
		assert.Positive(t, one, "the lock came before it was let go")
	}
	require.NoError(t, follower.take(ctx), "the leader has let go")
	follower.release()
}

func TestWhoWaitsForALock(t *testing.T) {
	t.Parallel()
	const locks = `1: OFDLCK ADVISORY  WRITE -1 fd:01:4711 8 15
1: -> OFDLCK ADVISORY  WRITE -1 fd:01:4711 8 15
2: FLOCK  ADVISORY  WRITE 12 fd:01:815 0 EOF
`
	assert.True(t, isAwaited([]byte(locks), 4711))
	assert.False(t, isAwaited([]byte(locks), 711), "another file")
	assert.False(t, isAwaited([]byte(locks), 815), "nobody waits")
}
