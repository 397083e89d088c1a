package daemon

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/test/simgpu/abi"
	"github.com/prism-gpu/prism/test/simgpu/wire"
)

// connection carries one call at a time of one process.
type connection struct {
	conn   *net.UnixConn
	caller abi.Caller
}

func (d *Daemon) serveCalls(ctx context.Context, conn *net.UnixConn) {
	caller, err := peer(conn)
	if err != nil {
		return
	}
	c := &connection{conn: conn, caller: caller}
	defer d.sessions.leave(c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := d.server(c)
	for request := range c.requests(ctx, cancel) {
		reply, err := server.Answer(ctx, c.caller, request)
		d.persister.flush()
		if err != nil {
			return
		}
		if err := wire.WriteReply(conn, reply); err != nil {
			return
		}
	}
}

// requests reads ahead, so that a hanging call is canceled when its process exits.
func (c *connection) requests(ctx context.Context, cancel func()) <-chan wire.Request {
	requests := make(chan wire.Request)
	go func() {
		defer close(requests)
		defer cancel()
		reader := bufio.NewReader(c.conn)
		for {
			request, err := wire.ReadRequest(reader)
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-ctx.Done():
				return
			}
		}
	}()
	return requests
}

// peer identifies the process at the other end, in the daemon's namespaces.
func peer(conn *net.UnixConn) (abi.Caller, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return abi.Caller{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return abi.Caller{}, err
	}
	if credErr != nil {
		return abi.Caller{}, credErr
	}
	pid := int(cred.Pid)
	return abi.Caller{PID: pid, Process: processName(pid), Root: cred.Uid == 0}, nil
}

func processName(pid int) string {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(name))
}
