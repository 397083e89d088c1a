package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/listen"
)

// pipes is a listener whose connections stay in this process, so that they use the clock of a synctest bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accepted:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// dial opens a connection from an address, and sends nothing.
func (p *pipes) dial(from net.IP) net.Conn {
	client, server := net.Pipe()
	p.accepted <- sourced{server, &net.TCPAddr{IP: from, Port: 2}}
	return client
}

// sourced is a connection from an address.
type sourced struct {
	net.Conn
	address net.Addr
}

func (c sourced) RemoteAddr() net.Addr { return c.address }

// closed waits until the other side closes a connection.
func closed(t *testing.T, connection net.Conn) {
	t.Helper()
	_, err := connection.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestServer_SilentConnections_ControllersAnswered: any pod that can reach the port may open connections and send nothing.
func TestServer_SilentConnections_ControllersAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, listener := newAuthority(t), newPipes()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		server := New(options(t, a))
		go func() { ended <- server.serve(ctx, listener) }()
		t.Cleanup(func() {
			stop()
			require.NoError(t, <-ended)
			time.Sleep(time.Minute) // both sides of a connection may still write their close messages, with TLS's timeout of 5 s
		})
		ask := asks(t, a, "node", func(context.Context, string, string) (net.Conn, error) {
			return listener.dial(net.IPv4(127, 0, 0, 1)), nil
		})

		began := time.Now()
		var silent []net.Conn
		for i := range 8 {
			for range listen.Handshakes.PerClient {
				silent = append(silent, listener.dial(net.IPv4(127, 0, 1, byte(i+1))))
			}
		}
		require.Greater(t, len(silent), listen.Verified)
		closed(t, listener.dial(net.IPv4(127, 0, 1, 1))) // one more than allowed for an address
		for range 3 {
			answer, err := ask(a, controllers, http.MethodGet, "/v1/reports", nil)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
		}
		assert.Zero(t, time.Since(began), "no place became free meanwhile")
		for _, connection := range silent {
			closed(t, connection)
		}
		assert.Equal(t, handshakeTimeout, time.Since(began))
	})
}

// TestGate_Places_GivenBack: a connection occupies a place while it is open, even if its client is gone.
func TestGate_Places_GivenBack(t *testing.T) {
	a := newAuthority(t)
	ask := serve(t, a)
	for range 2*listen.Verified + 1 {
		answer, err := ask(a, controllers, http.MethodGet, "/v1/reports", nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
}

// TestGate_VerifiedClient_MoreThanUnknownOnes: open connections of a verified client, such as downloads, are not counted as handshakes of its
// address.
func TestGate_VerifiedClient_MoreThanUnknownOnes(t *testing.T) {
	a := newAuthority(t)
	server := New(options(t, a))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := newGate(listener, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.certificates() }})
	t.Cleanup(func() { _ = g.Close() })
	mine := t.TempDir()
	a.write(t, mine, config.ReportsClientName)
	pair, err := tls.LoadX509KeyPair(filepath.Join(mine, "tls.crt"), filepath.Join(mine, "tls.key"))
	require.NoError(t, err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: config.ReportsServerName, Certificates: []tls.Certificate{pair}}
	config.RootCAs.AddCert(a.cert)
	for range 2 * listen.Handshakes.PerClient {
		client, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		_, err = g.Accept()
		require.NoError(t, err)
	}
}
