package memlimit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// listen creates the socket and replaces the socket of an earlier process, which continues to serve its open connections. The socket stays
// when the process exits: the path may belong to a later one.
func listen(socket string) (_ *net.UnixListener, own os.FileInfo, _ error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, nil, err
	}
	name := socket + "." + rand.Text()[:8] // no other process has that name, also while both begin
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(name, 0o600); err == nil {
		own, err = os.Stat(name)
	}
	if err == nil {
		err = os.Rename(name, socket)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close(), os.Remove(name))
	}
	return listener, own, nil
}

// accepts reports whether a process serves the path: this one, whose socket is own, or another one that accepts a connection. Other failures
// prove nothing.
func accepts(socket string, own os.FileInfo) bool {
	if now, err := os.Stat(socket); err == nil && os.SameFile(now, own) {
		return true
	}
	connection, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = connection.Close()
	}
	return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT)
}

// checkPeer refuses other users than root and this process's.
func checkPeer(connection *net.UnixConn) error {
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return controlErr
	}
	if err != nil {
		return fmt.Errorf("reading the user of the other side: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d: %w", peer.Uid, gpu.ErrPermission)
	}
	return nil
}
