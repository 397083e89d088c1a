package memlimit

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

const retry = time.Minute

// TestServer_ContainerStarts_LimitedWithTwoCalls: it is set and read back, once for every start of a container.
func TestServer_ContainerStarts_LimitedWithTwoCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(t)
	require.NoError(t, w.container(t, cgroup, "uid", share, retry))
	want := gpu.MemoryLimits{Hard: 4 << 30}
	assert.Equal(t, map[string]gpu.MemoryLimits{string(gpuA) + "/sys/fs/cgroup" + cgroup: want}, w.driver.limits)
	assert.Equal(t, [2]int{1, 1}, [2]int{w.driver.sets, w.driver.gets})

	require.NoError(t, w.container(t, cgroup, "uid", share, retry), "a container that is started again")
	require.NoError(t, w.container(t, "/kubepods/pod1/c2", "uid", share, retry), "another container of the claim")
	assert.Len(t, w.driver.limits, 2)
	assert.Equal(t, [2]int{3, 3}, [2]int{w.driver.sets, w.driver.gets})
}

func TestServer_InvalidRequest_RefusedWithoutCalls(t *testing.T) {
	t.Parallel()
	const failed = "limiting the GPU memory of the container: "
	for name, c := range map[string]struct {
		cgroup, claim, device, want string
		change                      func(w *world)
	}{
		"unknown claim":             {claim: "other", want: "record of claim other: not found"},
		"unknown device":            {device: "uid-gpu-bbbbbbbb", want: `claim ns/claim: it has no device "uid-gpu-bbbbbbbb"`},
		"no memory requested":       {device: "uid-none", want: `claim ns/claim: device "uid-none" has no memory of its own`},
		"a whole GPU":               {device: "uid-whole", want: `claim ns/claim: device "uid-whole" has no memory of its own`},
		"admin access":              {device: "uid-admin", want: `claim ns/claim: device "uid-admin" has no memory of its own`},
		"an MPS share":              {device: "uid-mps", want: `claim ns/claim: device "uid-mps" has no memory of its own`},
		"memory that is no number":  {device: "uid-unreadable", want: `claim ns/claim: reading the allocated memory "much": `},
		"a cgroup that is gone":     {cgroup: "/system/a", want: "/system/a: not found"},
		"a claim that is undone":    {change: func(w *world) { w.record.State = checkpoint.Releasing }, want: "claim ns/claim: it is not prepared"},
		"a claim that is not done":  {change: func(w *world) { w.record.State = checkpoint.Intent }, want: "claim ns/claim: it is not prepared"},
		"a record without a result": {change: func(w *world) { w.record.Results = nil }, want: `claim ns/claim: it has no device "` + share + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.change != nil {
				c.change(w)
			}
			w.serve(t)
			or := func(value, otherwise string) string {
				if value == "" {
					return otherwise
				}
				return value
			}
			err := w.container(t, or(c.cgroup, cgroup), or(c.claim, "uid"), or(c.device, share), retry)
			require.ErrorContains(t, err, failed+c.want)
			assert.Zero(t, w.driver.sets+w.driver.gets)
		})
	}
}

// TestServer_DriverFails_ContainerFails: an error of the driver is final unless it may pass soon.
func TestServer_DriverFails_ContainerFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		want   string
		again  bool
	}{
		"refused": {func(w *world) { w.driver.err = gpu.ErrPermission }, "permission denied", false},
		"unsupported": {
			func(w *world) { w.driver.err = &gpu.UnsupportedError{Feature: "limits", Needs: "driver 615 or later"} }, "driver 615 or later", false,
		},
		"not in force": {
			func(w *world) {
				w.driver.changes = func(gpu.MemoryLimits) gpu.MemoryLimits { return gpu.MemoryLimits{Hard: 1 << 62} }
			}, "the driver reports a soft limit of 0 and a hard limit of 4611686018427387904 bytes on GPU " + string(gpuA) + ", and not 0 and 4294967296", false,
		},
		"a soft limit": {
			func(w *world) {
				w.driver.changes = func(l gpu.MemoryLimits) gpu.MemoryLimits { return gpu.MemoryLimits{Soft: l.Hard, Hard: l.Hard} }
			}, "the driver reports a soft limit of 4294967296", false,
		},
		"not open yet":    {func(w *world) { w.opened = gpu.ErrDriverNotLoaded }, "NVIDIA driver is not loaded", true},
		"does not answer": {func(w *world) { w.driver.err = gpu.ErrTimeout }, "no answer within the deadline", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.change(w)
			var opened atomic.Int32
			failing := w.server.Driver
			w.server.Driver = func() (gpu.MemoryLimiter, error) {
				if opened.Add(1) > 3 {
					return &driver{limits: map[string]gpu.MemoryLimits{}}, nil
				}
				return failing()
			}
			w.serve(t)
			once := w.hook(processIn(t, cgroup), pid, retry)
			once.Pause = retry // its budget is over after the first answer
			err := once.Run(w.arguments("uid", share))
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.again, strings.Contains(err.Error(), "no limit after 1m0s"), err)
			assert.EqualValues(t, 1, opened.Load())

			err = w.container(t, cgroup, "uid", share, retry)
			if c.again {
				require.NoError(t, err)
				assert.EqualValues(t, 4, opened.Load(), "asked until it answers")
			} else {
				require.ErrorContains(t, err, c.want)
				assert.EqualValues(t, 2, opened.Load(), "asked once")
			}
		})
	}
}

// TestServer_InvalidLine_Answered also if the cgroup is one that prism-hook would not send.
func TestServer_InvalidLine_Answered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(t)
	line := func(cgroup string) string {
		return fmt.Sprintf(`{"claim":"uid","device":%q,"cgroup":%q}`, share, cgroup)
	}
	for name, c := range map[string]struct{ line, want string }{
		"no JSON":        {"limit", "reading the request: invalid character"},
		"too long":       {`{"claim":"` + strings.Repeat("x", protocol.MaxLine), "reading the request: bufio: buffer full"},
		"upwards":        {line("/kubepods/../.."), "is not the cgroup of a container"},
		"upwards inside": {line("/kubepods/a/../../b"), "is not the cgroup of a container"},
		"relative":       {line("kubepods/a"), "is not the cgroup of a container"},
		"all processes":  {line("/"), "is not the cgroup of a container"},
		"two slashes":    {line("//kubepods"), "is not the cgroup of a container"},
		"none":           {line(""), "is not the cgroup of a container"},
		"nothing":        {"{}", "is not the cgroup of a container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection, err := net.Dial("unix", w.server.Socket)
			require.NoError(t, err)
			defer connection.Close()
			require.NoError(t, connection.SetDeadline(time.Now().Add(retry)))
			_, err = connection.Write([]byte(c.line + "\n"))
			require.NoError(t, err)
			answer := make([]byte, protocol.MaxLine)
			n, err := connection.Read(answer)
			require.NoError(t, err)
			assert.Contains(t, string(answer[:n]), c.want)
		})
	}
	assert.Zero(t, w.driver.sets)
}

// TestRun_NewerProcess_HasTheSocket: it takes the place of the older one's, which does not remove it.
func TestRun_NewerProcess_HasTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stopOlder := w.serve(t)
	info, err := os.Stat(w.server.Socket)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	newer := &driver{limits: map[string]gpu.MemoryLimits{}}
	older := w.server
	w.server.Driver = func() (gpu.MemoryLimiter, error) { return newer, nil }
	stopNewer := w.serve(t)
	require.NoError(t, w.container(t, cgroup, "uid", share, retry))
	assert.Equal(t, [2]int{0, 1}, [2]int{w.driver.sets, newer.sets})
	stopOlder()
	require.NoError(t, w.container(t, cgroup, "uid", share, retry), "the older one has exited")
	assert.Equal(t, 2, newer.sets)

	stopNewer()
	err = w.container(t, cgroup, "uid", share, 20*time.Millisecond)
	require.ErrorContains(t, err, "no limit after 20ms: ", "no process has the socket")
	require.ErrorContains(t, err, "check the kubelet plugin of Prism on the node")
	entries, err := os.ReadDir(filepath.Dir(w.server.Socket))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no other file is left")

	w.server = older
	w.serve(t)
	require.NoError(t, w.container(t, cgroup, "uid", share, retry), "the next one replaces a socket that nothing serves")
}

// TestContainer_PluginStartsLater_Limited: prism-hook retries while no process owns the socket.
func TestContainer_PluginStartsLater_Limited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proc, done := processIn(t, cgroup), make(chan error, 1)
	go func() { done <- w.start(proc, pid, "uid", share, retry) }()
	w.serve(t)
	require.NoError(t, <-done)
	assert.Equal(t, 1, w.driver.sets)
}

// TestRun_SocketCannotBeMade_GoesOn: the plugin serves all else, and ends with its context.
func TestRun_SocketCannotBeMade_GoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, os.WriteFile(filepath.Dir(w.server.Socket), nil, 0o600))
	require.Error(t, w.server.listen(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.server.Run(ctx) }()
	cancel()
	require.NoError(t, <-done)
}
