package memlimit

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// TestRun_NewerProcessExits_OlderHasTheSocketAgain: a process that exits early keeps no container from its limit.
func TestRun_NewerProcessExits_OlderHasTheSocketAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.Pause = time.Millisecond
	w.serve(t)
	newer := &driver{limits: map[string]gpu.MemoryLimits{}}
	older := w.server
	w.server.Driver = func() (gpu.MemoryLimiter, error) { return newer, nil }
	stopNewer := w.serve(t)
	for range 20 { // the older one checks the socket meanwhile
		require.NoError(t, w.container(t, cgroup, "uid", share, retry))
	}
	assert.Equal(t, [2]int{0, 20}, [2]int{w.driver.sets, newer.sets}, "as long as the newer one serves")

	w.server = older
	stopNewer()
	require.NoError(t, w.container(t, cgroup, "uid", share, retry))
	assert.Equal(t, 1, w.driver.sets)
	require.NoError(t, os.Remove(w.server.Socket))
	require.NoError(t, w.container(t, cgroup, "uid", share, retry), "the file was removed")
	assert.Equal(t, 2, w.driver.sets)
}
