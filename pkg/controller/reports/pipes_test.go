package reports

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
)

// pipes is a network without the kernel, for tests in a bubble: a goroutine that waits for a socket would stop the bubble's clock. A
// connection to an address without a server waits forever.
type pipes struct {
	t     *testing.T
	a     authority
	nodes map[string]pipeListener
}

// pipeListener accepts the server's ends of connections.
type pipeListener struct {
	connections chan net.Conn
	closed      context.Context
	close       context.CancelFunc
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	l.close()
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func newPipes(t *testing.T) *pipes {
	t.Helper()
	return &pipes{t: t, a: newAuthority(t), nodes: map[string]pipeListener{}}
}

// standIn serves a node at an address.
func (p *pipes) standIn(address string, handler http.HandlerFunc) {
	p.t.Helper()
	own := p.a.issue(p.t, config.ReportsServerName)
	pair, err := tls.LoadX509KeyPair(filepath.Join(own, "tls.crt"), filepath.Join(own, "tls.key"))
	require.NoError(p.t, err)
	closed, stop := context.WithCancel(context.Background())
	listener := pipeListener{make(chan net.Conn), closed, stop}
	p.nodes[address] = listener
	server := &http.Server{Handler: handler}
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}))
	}()
	p.t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(p.t, <-done, http.ErrServerClosed)
	})
}

// asking returns Nodes that ask these endpoints through the pipes, with the limits of the product.
func (p *pipes) asking(endpoints ...Endpoint) *Nodes {
	p.t.Helper()
	certificate := p.a.issue(p.t, "prism-controller")
	nodes := NewNodes(certificate, func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid"))
	nodes.client.Transport.(*http.Transport).DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		config, err := clientTLS(certificate)
		if err != nil {
			return nil, err
		}
		own, other := net.Pipe()
		if node, ok := p.nodes[address]; ok {
			node.connections <- other
		}
		connection := tls.Client(own, config)
		// A canceled request leaves its connection attempt behind; the product's dialer uses the same limit.
		ctx, stop := context.WithTimeout(ctx, nodes.limits.connect)
		defer stop()
		if err := connection.HandshakeContext(ctx); err != nil {
			_ = own.Close()
			return nil, err
		}
		return connection, nil
	}
	p.t.Cleanup(func() {
		nodes.client.CloseIdleConnections()
		time.Sleep(nodes.limits.connect) // pending connections
	})
	return nodes
}
