package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// maxConnections bounds the memory that controllers take; each replica needs a few.
	maxConnections = 64
	// maxHandshakes are the connections whose client is not known yet, and sourceHandshakes those from one address. Any pod may open them, and
	// they take no place of a controller's.
	maxHandshakes    = 512
	sourceHandshakes = 16
	// handshakeTimeout is how long a client may take to send its certificate.
	handshakeTimeout = 3 * time.Second
	// acceptPause keeps a process without a free file descriptor from accepting in a loop.
	acceptPause = 50 * time.Millisecond
)

// gate is a listener of connections whose clients are verified. Use newGate.
type gate struct {
	net.Listener
	config   *tls.Config
	verified chan net.Conn
	// places has one of each verified connection.
	places chan struct{}
	// ctx ends with the listener.
	ctx  context.Context //nolint:containedctx // Accept has none
	stop context.CancelCauseFunc

	mu    sync.Mutex
	all   int
	peers map[string]int // handshakes by address
}

func newGate(listener net.Listener, config *tls.Config) *gate {
	ctx, stop := context.WithCancelCause(context.Background())
	g := &gate{
		Listener: listener, config: config, verified: make(chan net.Conn), places: make(chan struct{}, maxConnections), ctx: ctx, stop: stop,
		peers: map[string]int{},
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
		peer := address(connection)
		if !g.enter(peer) {
			_ = connection.Close()
			continue
		}
		go func() {
			defer g.leave(peer)
			g.verify(connection)
		}()
	}
}

// verify passes a connection on whose client is verified, and closes others.
func (g *gate) verify(connection net.Conn) {
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
	select {
	case g.verified <- secure:
	case <-ctx.Done():
		_ = secure.Close()
	}
}

// enter counts a handshake; false: there are as many as there may be.
func (g *gate) enter(peer string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= maxHandshakes || g.peers[peer] >= sourceHandshakes {
		return false
	}
	g.all++
	g.peers[peer]++
	return true
}

func (g *gate) leave(peer string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.peers[peer]--; g.peers[peer] == 0 {
		delete(g.peers, peer)
	}
}

// Accept returns the next connection whose client is verified.
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

// place is a connection that gives its place back when it is closed.
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

func address(connection net.Conn) string {
	host, _, err := net.SplitHostPort(connection.RemoteAddr().String())
	if err != nil {
		return connection.RemoteAddr().String()
	}
	return host
}
