package mpsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
)

// Serve answers requests at the unix socket until the context is done. The daemons keep running.
func (s *Service) Serve(ctx context.Context, socket string) error {
	listener, err := listen(ctx, socket)
	if err != nil {
		return fmt.Errorf("listening at %s: %w", socket, err)
	}
	const headerTimeout, closeTimeout = 10 * time.Second, time.Second
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ConnContext: withPeer,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go s.cutLogs(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// Requests that wait for a change return when the context is done.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = server.Shutdown(closing) // clients repeat unanswered requests
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

// listen creates the socket for root, and replaces the socket of an earlier service.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	tmp := socket + disk.TempSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", tmp)
	if err != nil {
		return nil, err
	}
	if unixListener, ok := listener.(*net.UnixListener); ok {
		// The next service replaces the socket, so that clients always find one.
		unixListener.SetUnlinkOnClose(false)
	}
	const rootOnly = 0o600
	if err := errors.Join(os.Chmod(tmp, rootOnly), os.Rename(tmp, socket)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// peerKey is the key of the connection in the context of its requests.
type peerKey struct{}

func withPeer(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, connection)
}

// checkPeer refuses requests of processes that do not run as root.
func checkPeer(ctx context.Context) error {
	connection, ok := ctx.Value(peerKey{}).(*net.UnixConn)
	if !ok {
		return errors.New("requests must come over a unix socket")
	}
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, peerErr); err != nil {
		return fmt.Errorf("reading the user of the peer: %w", err)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("user %d is refused: only root may control MPS daemons", peer.Uid)
	}
	return nil
}
