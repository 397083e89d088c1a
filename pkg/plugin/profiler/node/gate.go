package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/listen"
)

const (
	// handshakeTimeout is the timeout for a client to send its certificate.
	handshakeTimeout = 3 * time.Second
	// acceptPause prevents a busy loop of a process without free file descriptors.
	acceptPause = 50 * time.Millisecond
)

// gate is a listener that returns connections of verified clients only. Use newGate.
type gate struct {
	net.Listener
	config   *tls.Config
	verified chan net.Conn
	// places contains one element for each verified connection.
	places chan struct{}
	// ctx ends with the listener.
	ctx  context.Context //nolint:containedctx // Accept has none
	stop context.CancelCauseFunc
}

func newGate(listener net.Listener, config *tls.Config) *gate {
	ctx, stop := context.WithCancelCause(context.Background())
	g := &gate{
		Listener: listen.Bound(listener, listen.Handshakes), config: config,
		verified: make(chan net.Conn), places: make(chan struct{}, listen.Verified), ctx: ctx, stop: stop,
	}
	go g.run()
	return g
}

// run accepts connections until the listener is closed.
func (g *gate) run() {
	for {
		connection, err := g.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			g.stop(err)
			return
		}
		if err != nil {
			select {
			case <-time.After(acceptPause):
			case <-g.ctx.Done():
			}
			continue
		}
		go g.verify(connection.(*listen.Conn)) //nolint:forcetypeassert // by listen.Listener
	}
}

// verify passes on a connection with a verified client, and closes others.
func (g *gate) verify(connection *listen.Conn) {
	ctx, stop := context.WithTimeout(g.ctx, handshakeTimeout)
	defer stop()
	placed := &place{Conn: connection}
	secure := tls.Server(placed, g.config)
	if secure.HandshakeContext(ctx) != nil {
		_ = connection.Close()
		return
	}
	select {
	case g.places <- struct{}{}:
	case <-ctx.Done():
		_ = secure.Close()
		return
	}
	placed.leave = sync.OnceFunc(func() { <-g.places })
	connection.Release()
	select {
	case g.verified <- secure:
	case <-ctx.Done():
		_ = secure.Close()
	}
}

// Accept returns the next connection with a verified client.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case connection := <-g.verified:
		return connection, nil
	case <-g.ctx.Done():
		return nil, context.Cause(g.ctx)
	}
}

// Close ends Accept and all handshakes.
func (g *gate) Close() error {
	g.stop(net.ErrClosed)
	return g.Listener.Close()
}

// place is a connection that frees its place when it is closed.
type place struct {
	net.Conn
	leave func()
}

func (p *place) Close() error {
	if p.leave != nil {
		p.leave()
	}
	return p.Conn.Close()
}
