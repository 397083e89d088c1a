// Package daemon serves one simulated node: NVML calls on the socket that the
// library finds, and commands on a control socket.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/prism-gpu/prism/test/simgpu/abi"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Daemon runs as long as the node exists: an unloaded driver is a state of
// the model, and the socket stays the same file throughout.
type Daemon struct {
	node      *model.Node
	sessions  *sessions
	calls     net.Listener
	control   net.Listener
	persister *persister
	holds     holds
}

// maxSocketPath is the maximum length of a unix socket path.
const maxSocketPath = 107

// Listen opens both sockets of a node; anyone may connect to the first, the
// owner to the second.
func Listen(paths layout.Paths, node *model.Node) (*Daemon, error) {
	calls, err := listen(paths.Socket(), 0o666)
	if err != nil {
		return nil, err
	}
	control, err := listen(paths.Control(), 0o600)
	if err != nil {
		calls.Close()
		return nil, err
	}
	return &Daemon{node: node, sessions: newSessions(node), calls: calls, control: control, persister: newPersister(paths, node)}, nil
}

func listen(path string, mode os.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listening on %s: the path has %d bytes, a socket takes %d (choose a shorter --root)", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	// The file stays after the listener is closed; destroying the node removes it.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, mode); err != nil {
		listener.Close()
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return listener, nil
}

// Run serves until ctx ends or a stop command arrives; then it returns nil.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		<-ctx.Done()
		d.calls.Close()
		d.control.Close()
	})
	running.Go(func() {
		accept(ctx, stop, d.calls, func(conn *net.UnixConn) { d.serveCalls(ctx, conn) })
	})
	accept(ctx, stop, d.control, func(conn *net.UnixConn) { d.serveControl(conn, stop) })
	running.Wait()
	return nil
}

// accept serves connections until the listener closes, then waits for them.
func accept(ctx context.Context, stop func(), listener net.Listener, serve func(*net.UnixConn)) {
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer conn.Close()
			hangUp := context.AfterFunc(ctx, func() { conn.Close() })
			defer hangUp()
			serve(conn.(*net.UnixConn))
		})
	}
}

// server serves one connection.
func (d *Daemon) server(c *connection) abi.Server {
	return abi.Server{Node: d.node, Sessions: d.sessions.of(c)}
}
