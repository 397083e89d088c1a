package memlimit

import (
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// TestServer_HookKilledAnywhere_OnlyItsCgroupLimited: whatever part of a request a killed hook has sent, other containers get their limits, and
// a limit that was set ends with the cgroup of the container that failed.
func TestServer_HookKilledAnywhere_OnlyItsCgroupLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(t)
	const failed, next = "/kubepods/pod1/failed", "/kubepods/pod1/next"
	request, err := json.Marshal(protocol.LimitRequest{LimitedDevice: protocol.LimitedDevice{Claim: "uid", Device: share}, Cgroup: failed})
	require.NoError(t, err)
	request = append(request, '\n')
	send := func(part []byte) *net.UnixConn {
		connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: w.server.Socket})
		require.NoError(t, err)
		require.NoError(t, connection.SetDeadline(time.Now().Add(retry)))
		_, err = connection.Write(part)
		require.NoError(t, err)
		return connection
	}
	for n := range request { // without the end of the line
		connection := send(request[:n])
		require.NoError(t, connection.CloseWrite())
		answer, err := io.ReadAll(connection) // until the server has done with it
		require.NoError(t, err)
		require.NoError(t, connection.Close())
		assert.NotEqual(t, "{}\n", string(answer), n)
	}
	calls := func() [2]int {
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		return [2]int{w.driver.sets, w.driver.gets}
	}
	assert.Equal(t, [2]int{}, calls())
	require.NoError(t, send(request).Close())
	require.Eventually(t, func() bool { return calls() == [2]int{1, 1} }, retry, time.Millisecond)

	require.NoError(t, w.container(t, next, "uid", share, retry), "the container is started again")
	want := gpu.MemoryLimits{Hard: 4 << 30}
	assert.Equal(t, map[string]gpu.MemoryLimits{
		string(gpuA) + "/sys/fs/cgroup" + failed: want, string(gpuA) + "/sys/fs/cgroup" + next: want,
	}, w.driver.limits)
	other := prepared()
	other.Claim.UID, other.Results[0].Consumed = "uid2", map[string]string{"memory": "1Gi"}
	w.record = other
	w.hooks("uid2")
	require.NoError(t, w.container(t, failed, "uid2", share, retry), "the server remembers nothing of the container that failed")
	assert.Equal(t, [2]int{3, 3}, calls())
}
