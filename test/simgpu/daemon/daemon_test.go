package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// serveNode runs a daemon below a temporary directory until it is stopped.
func serveNode(t *testing.T) (layout.Paths, *model.Node, func()) {
	t.Helper()
	root, err := os.MkdirTemp("", "simgpu-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	paths := layout.Sandbox(root)
	for _, socket := range []string{paths.Socket(), paths.Control()} {
		require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	}
	node, err := model.New(model.Uniform("node-a", "h100-80", 2))
	require.NoError(t, err)
	d, err := Listen(paths, node)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop := func() {
		cancel()
		require.NoError(t, <-done)
		done <- nil
	}
	t.Cleanup(stop)
	return paths, node, stop
}

func dial(t *testing.T, paths layout.Paths) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", paths.Socket())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func text(s string) wire.Arg { return wire.Arg{Direction: wire.In, Size: len(s), Bytes: []byte(s)} }

func room(n int) wire.Arg { return wire.Arg{Direction: wire.Out, Size: n} }

// initialise starts a session and returns its number.
func initialise(t *testing.T, conn net.Conn) uint64 {
	t.Helper()
	reply := exchangeFrames(t, conn, wire.Request{Name: "nvmlInit_v2", Args: []wire.Arg{text("580.95.05"), text("\x00\x01"), text(""), room(8)}})
	require.Zero(t, reply.Return)
	var id uint64
	for i, b := range reply.Outputs[0] {
		id |= uint64(b) << (8 * i)
	}
	return id
}

func exchangeFrames(t *testing.T, conn net.Conn, request wire.Request) wire.Reply {
	t.Helper()
	require.NoError(t, wire.WriteRequest(conn, request))
	reply, err := wire.ReadReply(conn)
	require.NoError(t, err)
	return reply
}

func openSessions(t *testing.T, paths layout.Paths) int {
	t.Helper()
	result, err := Send(paths, Command{State: true})
	require.NoError(t, err)
	return result.Sessions
}

func countRequest(session uint64) wire.Request {
	return wire.Request{Session: session, Name: "nvmlDeviceGetCount_v2", Args: []wire.Arg{room(4)}}
}

// The session of a process that is killed in a hanging call is closed.
func TestSessions_ProcessKilled_Closed(t *testing.T) {
	paths, node, _ := serveNode(t)
	conn := dial(t, paths)
	session := initialise(t, conn)
	require.Equal(t, 1, openSessions(t, paths))
	_, err := node.Faults.Add(model.Fault{Effect: model.EffectHang, GPU: model.AnyGPU})
	require.NoError(t, err)
	require.NoError(t, wire.WriteRequest(conn, countRequest(session)))
	require.Eventually(t, func() bool { return node.Faults.List()[0].Hits == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return openSessions(t, paths) == 0 }, time.Minute, time.Millisecond)
}

// A session exists as long as one of its connections.
func TestSessions_LastConnectionClosed_Ended(t *testing.T) {
	paths, _, _ := serveNode(t)
	first, second := dial(t, paths), dial(t, paths)
	session := initialise(t, first)
	require.Zero(t, exchangeFrames(t, second, countRequest(session)).Return)
	require.NoError(t, first.Close())
	require.Zero(t, exchangeFrames(t, second, countRequest(session)).Return)
	left := wire.Arg{Direction: wire.In, Size: 4, Bytes: make([]byte, 4)}
	require.Zero(t, exchangeFrames(t, second, wire.Request{Session: session, Name: "nvmlShutdown", Args: []wire.Arg{left}}).Return)
	assert.Equal(t, int32(model.DriverNotLoaded), exchangeFrames(t, second, countRequest(session)).Return)
	assert.Zero(t, openSessions(t, paths))
}

// The files of the sockets stay: a container holds their inodes.
func TestRun_Stopped_SocketFilesStay(t *testing.T) {
	paths, node, stop := serveNode(t)
	conn := dial(t, paths)
	session := initialise(t, conn)
	_, err := node.Faults.Add(model.Fault{Effect: model.EffectHang, GPU: model.AnyGPU})
	require.NoError(t, err)
	require.NoError(t, wire.WriteRequest(conn, countRequest(session)))
	stop()
	_, err = wire.ReadReply(conn)
	require.Error(t, err, "a hanging call ends with the daemon")
	for _, socket := range []string{paths.Socket(), paths.Control()} {
		_, err := os.Lstat(socket)
		require.NoError(t, err)
	}
	_, err = Send(paths, Command{State: true})
	require.ErrorContains(t, err, "connecting to the GPU node at "+paths.Root)
	require.NoError(t, Stop(paths), "nothing to stop")
}

func TestListen_LongPath_Refused(t *testing.T) {
	node, err := model.New(model.Spec{Name: "n"})
	require.NoError(t, err)
	_, err = Listen(layout.Sandbox("/tmp/"+string(make([]byte, 100))), node)
	require.ErrorContains(t, err, "a socket takes 107 (choose a shorter --root)")
}
