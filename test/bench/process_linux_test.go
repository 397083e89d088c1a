package bench

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCPUTime_Work_Grows(t *testing.T) {
	t.Parallel()
	before, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	for after := before; after == before; {
		after, err = cpuTime(os.Getpid())
		require.NoError(t, err)
		require.GreaterOrEqual(t, after, before)
	}
	assert.Positive(t, before)
	_, err = cpuTime(1<<22 + 1) // process ids are at most 1<<22
	assert.Error(t, err)
}
