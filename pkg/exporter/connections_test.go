package exporter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/listen"
)

// kubelet is the address of a client with one connection.
const kubelet = "127.0.0.1"

// dial connects from an address of this machine, and sends nothing.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	return conn
}

// get requests a page on a new connection. It returns an error if the server closes the connection without an answer.
func get(t *testing.T, from, to, page string) (status int, err error) {
	t.Helper()
	conn := dial(t, from, to)
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+page+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// answered requires an answer to a probe.
func answered(t *testing.T, from, to string) {
	t.Helper()
	status, err := get(t, from, to, "/healthz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

// listening runs a server with a separate address for probes, and returns both addresses.
func listening(t *testing.T) (pages, probes string) {
	t.Helper()
	var now view = &text{"one"}
	s := serving(&now)
	addresses, done := make(chan net.Addr, 2), make(chan error, 1)
	s.serving.HTTPEndpoint, s.probes, s.listening = "127.0.0.1:0", "127.0.0.1:0", func(at net.Addr) { addresses <- at }
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	go func() { done <- s.run(ctx) }()
	pages, probes = (<-addresses).String(), (<-addresses).String()
	status, err := get(t, kubelet, pages, "/metrics")
	require.NoError(t, err)
	if status == http.StatusNotFound {
		pages, probes = probes, pages
	}
	status, err = get(t, kubelet, probes, "/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status, "the port of the probes has no pages")
	return pages, probes
}

// TestServer_ClientTakesAll_OthersAnswered: a client that takes all its connections blocks only itself.
func TestServer_ClientTakesAll_OthersAnswered(t *testing.T) {
	t.Parallel()
	pages, probes := listening(t)
	const greedy = "127.0.0.2"
	held := make([]net.Conn, listen.Pages.PerClient)
	for i := range held {
		held[i] = dial(t, greedy, pages)
	}
	_, err := get(t, greedy, pages, "/metrics")
	require.Error(t, err)
	answered(t, kubelet, pages)
	answered(t, greedy, probes)
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool {
		_, err := get(t, greedy, pages, "/metrics")
		return err == nil
	}, waitLimit, pause, "a closed one leaves its place")
}

// TestServer_ManyClientsTakeAll_ProbeAnswered: probes are answered even if pods hold all possible connections to the port of the probes.
func TestServer_ManyClientsTakeAll_ProbeAnswered(t *testing.T) {
	t.Parallel()
	pages, probes := listening(t)
	for _, at := range []string{pages, probes} {
		var held []net.Conn
		for pod := range listen.Pages.Total / listen.Pages.PerClient {
			for range listen.Pages.PerClient {
				held = append(held, dial(t, fmt.Sprintf("127.0.1.%d", pod+1), at))
			}
		}
		for range 3 {
			answered(t, kubelet, at)
		}
		_, err := held[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the oldest one made room")
	}
}
