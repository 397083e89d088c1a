package listen

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestListener_Full_OldestOfTheGreediestClosed: a client with one connection keeps it as long as another one uses two.
func TestListener_Full_OldestOfTheGreediestClosed(t *testing.T) {
	t.Parallel()
	all := Bound(nil, Pages)
	add := func(client string) (added, leaves *Conn) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		added = &Conn{Conn: ours, of: all}
		added.client = addressOf(client)
		return added, all.add(added)
	}
	single, leaves := add("10.0.0.1:1")
	require.Nil(t, leaves)
	oldest, leaves := add("10.0.0.2:1")
	require.Nil(t, leaves)
	for i := range Pages.Total - 2 {
		_, leaves := add(fmt.Sprintf("10.0.%d.%d:2", i/2+1, 2)) // two each
		require.Nil(t, leaves)
	}
	_, leaves = add("[::ffff:10.0.0.2]:2")
	require.NotNil(t, leaves)
	assert.Equal(t, "10.0.1.2", leaves.client.String(), "the oldest of those with most")
	_, leaves = add("10.0.0.2:3")
	require.NotNil(t, leaves)
	assert.Same(t, oldest, leaves, "the same client by another form of its address")
	assert.Contains(t, all.open, single)
	assert.Len(t, all.open, Pages.Total)
}

// TestListener_Released_PlaceFree: a connection of a known client does not count as an unknown one, even if it is closed later.
func TestListener_Released_PlaceFree(t *testing.T) {
	t.Parallel()
	l, err := TCP(t.Context(), "127.0.0.1:0", Limits{Total: 1, PerClient: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var known []*Conn
	for range 3 {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		accepted, err := l.Accept()
		require.NoError(t, err)
		known = append(known, accepted.(*Conn)) //nolint:forcetypeassert // as documented
		known[len(known)-1].Release()
	}
	for _, each := range known {
		require.NoError(t, each.Close())
	}
	assert.Empty(t, l.open)
}

// request is a request from an address, with a body of that length; a negative length is not announced.
func request(t *testing.T, client string, body int64) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.RemoteAddr, r.ContentLength = client, body
	return r
}

// TestBoundRequests_ClientTakesAll_OthersAnswered: requests that one client keeps open do not use memory that other clients need, and their
// memory is free when they end.
func TestBoundRequests_ClientTakesAll_OthersAnswered(t *testing.T) {
	t.Parallel()
	held, started := make(chan struct{}), make(chan struct{})
	handler := boundRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Hold") != "" {
			started <- struct{}{}
			<-held
		}
	}), Limits{Total: 3 * requestMemory(request(t, "", -1)), PerClient: requestMemory(request(t, "", maxBody))})
	ask := func(client string, body int64, hold string) int {
		r, answer := request(t, client, body), httptest.NewRecorder()
		r.Header.Set("Hold", hold)
		handler.ServeHTTP(answer, r)
		return answer.Code
	}
	ended := make(chan int)
	for i := range 3 {
		go func() { ended <- ask(fmt.Sprintf("10.0.0.%d:1", i), -1, "yes") }()
		<-started
		assert.Equal(t, http.StatusServiceUnavailable, ask(fmt.Sprintf("10.0.0.%d:2", i), 0, ""), "its share is taken")
		if i < 2 {
			assert.Equal(t, http.StatusOK, ask("10.0.0.9:1", maxBody, ""), "another client")
		}
	}
	assert.Equal(t, http.StatusServiceUnavailable, ask("10.0.0.9:1", 0, ""), "all is taken")
	close(held)
	for range 3 {
		assert.Equal(t, http.StatusOK, <-ended)
	}
	assert.Equal(t, http.StatusOK, ask("10.0.0.0:3", maxBody, ""))
}

// TestBoundRequests_LongBody_NotRead: the limit also applies to a client that announces less than it sends, or nothing.
func TestBoundRequests_LongBody_NotRead(t *testing.T) {
	t.Parallel()
	var read int64
	var failed error
	handler := boundRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { read, failed = io.Copy(io.Discard, r.Body) }), RequestMemory)
	r := request(t, "10.0.0.1:1", -1)
	r.Body = io.NopCloser(bytes.NewReader(make([]byte, maxBody+1)))
	handler.ServeHTTP(httptest.NewRecorder(), r)
	require.Error(t, failed)
	assert.EqualValues(t, maxBody, read)
}

func TestServers_Timeouts_Set(t *testing.T) {
	t.Parallel()
	pages, admission := PageServer(http.NotFoundHandler()), AdmissionServer(http.NotFoundHandler())
	assert.NotZero(t, pages.WriteTimeout)
	for _, server := range []*http.Server{pages, admission} {
		assert.NotZero(t, server.ReadHeaderTimeout)
		assert.NotZero(t, server.IdleTimeout)
		assert.NotZero(t, server.MaxHeaderBytes)
	}
}

// TestServers_Clients_LogNothing: a failing client causes no log, a failing handler does.
func TestServers_Clients_LogNothing(t *testing.T) { //nolint:paralleltest // it reads what the process logs
	var logged bytes.Buffer
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for _, server := range []*http.Server{PageServer(nil), AdmissionServer(nil)} {
		server.ErrorLog.Printf("http: TLS handshake error from %s", "10.0.0.1:1")
	}
	assert.Empty(t, logged.String())
	PageServer(nil).ErrorLog.Printf("http: panic serving %s", "10.0.0.1:1")
	assert.Equal(t, "http: panic serving 10.0.0.1:1\n", logged.String())
}

// TestRequestMemory_RequestsForReportsWait_AdmissionAnswered: one API server sends as many requests for reports as may wait, and a request
// for admission of a configuration.
func TestRequestMemory_RequestsForReportsWait_AdmissionAnswered(t *testing.T) {
	t.Parallel()
	const reports = 1024 + 64 // maxCalls and systemCalls of pkg/controller/reports
	all := &taken{limits: RequestMemory, of: map[netip.Addr]int{}}
	client := addressOf("10.0.0.1:1")
	for range reports {
		require.True(t, all.enter(client, requestMemory(request(t, "10.0.0.1:1", 0))))
	}
	assert.True(t, all.enter(client, requestMemory(request(t, "10.0.0.1:1", 2<<20))), "1 MiB, before and after the edit")
}
