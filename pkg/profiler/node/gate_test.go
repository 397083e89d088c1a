package node

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dial opens a connection from an address of this host, and sends nothing.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	connection, err := dialer.DialContext(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// closed waits until the other side closed a connection.
func closed(t *testing.T, connection net.Conn) {
	t.Helper()
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := connection.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestServer_SilentConnections_ControllersAnswered: any pod that reaches the port may open connections and send nothing.
func TestServer_SilentConnections_ControllersAnswered(t *testing.T) {
	a := newAuthority(t)
	ask, address := serveAt(t, a)
	for tries := 1; ; tries++ {
		began := time.Now()
		var silent []net.Conn
		for i := range 8 {
			for range sourceHandshakes {
				silent = append(silent, dial(t, net.IPv4(127, 0, 1, byte(i+1)).String(), address))
			}
		}
		closed(t, dial(t, "127.0.1.1", address)) // one more than an address may have
		require.Greater(t, len(silent), maxConnections)
		for range 3 {
			answer, err := ask(a, controllers, http.MethodGet, "/v1/reports", nil)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
		}
		held := time.Since(began) < handshakeTimeout // no place became free meanwhile
		for _, connection := range silent {
			closed(t, connection)
		}
		assert.GreaterOrEqual(t, time.Since(began), handshakeTimeout-100*time.Millisecond)
		if held {
			return
		}
		require.Less(t, tries, 10, "this machine is too busy")
	}
}

// TestGate_Places_GivenBack: a connection has one as long as it is open, also one whose client went.
func TestGate_Places_GivenBack(t *testing.T) {
	a := newAuthority(t)
	ask := serve(t, a)
	for range 2*maxConnections + 1 {
		answer, err := ask(a, controllers, http.MethodGet, "/v1/reports", nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
}
