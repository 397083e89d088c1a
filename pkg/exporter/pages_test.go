package exporter

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/listen"
)

// text is a view with a fixed text.
type text struct{ says string }

func (t *text) append(to []byte, page format) []byte {
	return append(strconv.AppendInt(append(append(to, t.says...), ' '), int64(page), 10), '\n')
}

func serving(now *view) *server {
	return &server{
		serving: config.Serving{}, pages: &pages{view: func() view { return *now }},
		ready: func() error { return nil }, notes: func() []string { return nil },
	}
}

func scrape(s *server, path string, header http.Header) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	request.Header = header
	answer := httptest.NewRecorder()
	s.handler().ServeHTTP(answer, request)
	return answer
}

// TestPages_ManyScrapes_RenderedOnceARound counts: the first request after a round renders a page, which is kept until the next round.
func TestPages_ManyScrapes_RenderedOnceARound(t *testing.T) {
	t.Parallel()
	var now view = &text{"one"}
	s := serving(&now)
	for range 3 {
		assert.Equal(t, "one 0\n", scrape(s, "/metrics", nil).Body.String())
		assert.Equal(t, "one 2\n", scrape(s, "/metrics/dcgm", nil).Body.String())
	}
	assert.Equal(t, 2, s.pages.rendered)
	zip := http.Header{"Accept-Encoding": {"gzip"}}
	assert.NotEmpty(t, scrape(s, "/metrics", zip).Body.String())
	assert.Equal(t, 2, s.pages.rendered, "compressed from the text that is kept")
	now = &text{"two"}
	assert.Zero(t, s.pages.rendered-2, "no request came since the new round")
	for range 3 {
		answer := scrape(s, "/metrics", zip)
		assert.Equal(t, "gzip", answer.Header().Get("Content-Encoding"))
		reader, err := gzip.NewReader(bytes.NewReader(answer.Body.Bytes()))
		require.NoError(t, err)
		body, err := io.ReadAll(reader)
		require.NoError(t, err)
		assert.Equal(t, "two 0\n", string(body))
	}
	assert.Equal(t, 3, s.pages.rendered)
}

func TestServer_Accept_FormatNegotiated(t *testing.T) {
	t.Parallel()
	var now view = &text{"x"}
	s := serving(&now)
	const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	const plain = "text/plain; version=0.0.4; charset=utf-8"
	for accept, want := range map[string]string{
		"":    plain,
		"*/*": plain,
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1": openMetrics,
		"application/openmetrics-text;version=1.0.0;q=0.2,text/plain;version=0.0.4;q=0.4":                                plain,
		"text/html": plain,
	} {
		assert.Equal(t, want, scrape(s, "/metrics", http.Header{"Accept": {accept}}).Header().Get("Content-Type"), accept)
		assert.Equal(t, plain, scrape(s, "/metrics/dcgm", http.Header{"Accept": {accept}}).Header().Get("Content-Type"), accept)
	}
	for accept, want := range map[string]bool{"": false, "gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "*": true, "br": false} {
		assert.Equal(t, want, acceptsGzip(accept), accept)
	}
}

func TestServer_Post_NotAllowed(t *testing.T) {
	t.Parallel()
	var now view = &text{"one"}
	answer := httptest.NewRecorder()
	serving(&now).handler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/metrics", http.NoBody))
	assert.Equal(t, http.StatusMethodNotAllowed, answer.Code)
}

// TestPages_NewRound_OldPageUnchanged: a new page does not overwrite the buffer of a page that is being sent.
func TestPages_NewRound_OldPageUnchanged(t *testing.T) {
	t.Parallel()
	var now view = &text{"one"}
	p := &pages{view: func() view { return now }}
	for _, zip := range []bool{false, true} {
		now = &text{"one"}
		page := p.get(nativeText, zip)
		before := bytes.Clone(page)
		for _, says := range []string{"two", "three, which is longer"} {
			now = &text{says}
			p.get(dcgmText, zip)
			p.get(nativeText, zip)
		}
		assert.Equal(t, before, page)
	}
}

// TestPages_NewRound_BuffersUsedAgain counts: a scrape of a new round allocates little more than the page that is kept.
func TestPages_NewRound_BuffersUsedAgain(t *testing.T) {
	var now view
	p := &pages{view: func() view { return now }}
	says := strings.Repeat("some text ", 10_000)
	const rounds = 20
	var before, after runtime.MemStats
	for range rounds {
		now = &text{says}
		p.get(nativeText, true)
		if before.TotalAlloc == 0 {
			runtime.ReadMemStats(&before)
		}
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, int(after.TotalAlloc-before.TotalAlloc)/(rounds-1), len(says)/2)
}

func TestServer_Readyz_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	var now view = &text{"x"}
	s := serving(&now)
	s.notes = func() []string { return []string{"cri: there is no socket"} }
	answer := scrape(s, "/readyz", nil)
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Equal(t, "ok\ncri: there is no socket\n", answer.Body.String())
	s.ready = func() error { return errors.New("NVIDIA driver: none") }
	answer = scrape(s, "/readyz", nil)
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Equal(t, "NVIDIA driver: none\n", answer.Body.String())
	assert.Equal(t, http.StatusOK, scrape(s, "/healthz", nil).Code)
	assert.Equal(t, http.StatusNotFound, scrape(s, "/debug/pprof/", nil).Code)
}

// pipeListener has one connection.
type pipeListener struct{ connections chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	if connection, ok := <-l.connections; ok {
		return connection, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error {
	close(l.connections)
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// TestServer_ProfileLongerThanTimeout_Served: a profile may take longer than the timeout of a page. The test uses a profile that needs no
// goroutine of the runtime, which would stop the bubble's clock.
func TestServer_ProfileLongerThanTimeout_Served(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now view = &text{"one"}
		s := serving(&now)
		s.serving.Pprof = true
		server := listen.PageServer(s.handler())
		listener, done := pipeListener{make(chan net.Conn, 1)}, make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
		own, other := net.Pipe()
		listener.connections <- other
		defer func() {
			assert.NoError(t, errors.Join(own.Close(), server.Close()))
			assert.ErrorIs(t, <-done, http.ErrServerClosed)
		}()
		start := time.Now()
		request := httptest.NewRequest(http.MethodGet, "/debug/pprof/allocs?seconds="+strconv.Itoa(int(2*server.WriteTimeout/time.Second)), http.NoBody)
		require.NoError(t, request.Write(own))
		answer, err := http.ReadResponse(bufio.NewReader(own), request)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, answer.StatusCode)
		profile, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		assert.NotEmpty(t, profile)
		assert.Equal(t, 2*server.WriteTimeout, time.Since(start))
		assert.NoError(t, answer.Body.Close())
	})
}
