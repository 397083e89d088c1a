package reports

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// downloads returns a server whose clients connect within this process; the node behind it stores one report.
func downloads(t *testing.T, send http.HandlerFunc) (*Server, func(by string) net.Conn) {
	t.Helper()
	text := strings.Repeat("x", 1<<20)
	p := newPipes(t)
	p.standIn("n0:443", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/content") {
			send(w, r)
			return
		}
		answer(w, http.StatusOK, map[string]any{"reports": []report.Report{stored("n0", "team", "a", text)}})
	})
	s := &Server{Nodes: p.asking(Endpoint{Node: "n0", Address: "n0:443"}), Users: headers{}, Access: all{}}
	closed, stop := context.WithCancel(context.Background())
	listener := pipeListener{make(chan net.Conn), closed, stop}
	server := &http.Server{Handler: s.Handler()}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return s, func(by string) net.Conn {
		own, other := net.Pipe()
		listener.connections <- other
		_, err := io.WriteString(own, "GET "+inTeam+"/a/content HTTP/1.1\r\nHost: x\r\nX-Remote-User: "+by+"\r\n\r\n")
		require.NoError(t, err)
		t.Cleanup(func() { _ = own.Close() })
		return own
	}
}

// sent answers with a whole report.
func sent(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(strings.Repeat("x", 1<<20)))
}

// TestContent_NotRead_PlaceGivenBack: downloads that the client does not read occupy their user's places for stallTime, and no other
// places.
func TestContent_NotRead_PlaceGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, download := downloads(t, sent)
		began := time.Now()
		for range userDownloads {
			download("alice")
		}
		synctest.Wait()
		response := request(s.Handler(), http.MethodGet, "alice", inTeam+"/a/content")
		assert.Equal(t, http.StatusTooManyRequests, response.Code)
		assert.Equal(t, "1", response.Header().Get("Retry-After"))
		for _, path := range []string{"/a", "/a/content", ""} {
			assert.Equal(t, http.StatusOK, request(s.Handler(), http.MethodGet, "bob", inTeam+path).Code)
		}
		assert.Zero(t, time.Since(began), "nothing waited")
		time.Sleep(stallTime)
		synctest.Wait()
		assert.Equal(t, http.StatusOK, request(s.Handler(), http.MethodGet, "alice", inTeam+"/a/content").Code)
	})
}

// TestContent_SlowReader_All: a client that reads a little within each stallTime gets everything, however long that takes.
func TestContent_SlowReader_All(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, download := downloads(t, sent)
		connection, began := download("alice"), time.Now()
		part := make([]byte, 64<<10)
		for range 1 << 20 / len(part) { // the headers are included
			time.Sleep(stallTime / 3)
			_, err := io.ReadFull(connection, part)
			require.NoError(t, err)
		}
		assert.Greater(t, time.Since(began), 3*stallTime)
	})
}

// TestContent_NodeStalls_PlaceGivenBack: a stalled node does not occupy a place for longer than a stalled client.
func TestContent_NodeStalls_PlaceGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, download := downloads(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1048576")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "x")
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-r.Context().Done()
		})
		for range userDownloads {
			connection := download("alice")
			go func() { _, _ = io.Copy(io.Discard, connection) }()
		}
		synctest.Wait()
		assert.Equal(t, http.StatusTooManyRequests, request(s.Handler(), http.MethodGet, "alice", inTeam+"/a/content").Code)
		time.Sleep(stallTime)
		synctest.Wait()
		assert.Equal(t, http.StatusOK, request(s.Handler(), http.MethodGet, "alice", inTeam+"/a/content").Code)
	})
}

// TestContent_NodeCrowded_TryAgain: a node counts the downloads of a user through all controllers.
func TestContent_NodeCrowded_TryAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var by []seats.Party
		s, _ := downloads(t, func(w http.ResponseWriter, r *http.Request) {
			by = append(by, seats.ParseParty(r.URL.Query(), "team"))
			answer(w, http.StatusTooManyRequests, map[string]string{"error": "too many concurrent downloads from node n0"})
		})
		for _, user := range []string{"alice", "bob", "alice", namespaceController} {
			response := request(s.Handler(), http.MethodGet, user, inTeam+"/a/content")
			assert.Equal(t, http.StatusTooManyRequests, response.Code)
			assert.Equal(t, "1", response.Header().Get("Retry-After"))
			assert.Contains(t, response.Body.String(), "too many concurrent downloads from node n0")
		}
		require.Len(t, by, 4)
		assert.Equal(t, by[0], by[2])
		assert.NotEqual(t, by[0], by[1])
		assert.NotContains(t, by[0].User, "alice")
		assert.Equal(t, []bool{false, true}, []bool{by[0].System, by[3].System})
	})
}
