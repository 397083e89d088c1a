package diagnostics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/listen"
)

func get(t *testing.T, server *httptest.Server, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	require.NoError(t, err)
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

const limit = time.Minute

func TestHTTP_ProbesAndMetrics_Served(t *testing.T) {
	t.Parallel()
	var notReady error
	note := ""
	h := HTTP{Metrics: NewMetrics("v1", quiet()), Ready: func() error { return notReady }, Note: func() string { return note }}
	server := httptest.NewServer(h.handler())
	defer server.Close()
	for _, c := range []struct {
		path     string
		notReady error
		note     string
		status   int
		body     string
	}{
		{path: "/healthz", notReady: errors.New("not yet"), status: http.StatusOK, body: "ok\n"},
		{path: "/readyz", notReady: errors.New("not yet"), status: http.StatusServiceUnavailable, body: "not yet\n"},
		{path: "/readyz", status: http.StatusOK, body: "ok\n"},
		{path: "/readyz", note: "without devices", status: http.StatusOK, body: "ok, without devices\n"},
		{path: "/debug/pprof/", status: http.StatusNotFound, body: "404 page not found\n"},
	} {
		notReady, note = c.notReady, c.note
		status, body := get(t, server, c.path)
		assert.Equal(t, c.status, status, c.path)
		assert.Equal(t, c.body, body, c.path)
	}
	status, body := get(t, server, "/metrics")
	assert.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`prism_build_info{version="v1"} 1`, `prism_prepare_duration_seconds_bucket{outcome="error",le="0.0001"} 0`,
		`prism_unprepare_duration_seconds_count{outcome="success"} 0`, `prism_nvidia_driver_loaded 0`, `process_open_fds`, `go_goroutines`,
	} {
		assert.Contains(t, body, line)
	}
}

func TestHTTP_PprofOn_Served(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(HTTP{Metrics: NewMetrics("v1", quiet()), Pprof: true}.handler())
	defer server.Close()
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		status, _ := get(t, server, path)
		assert.Equal(t, http.StatusOK, status, path)
	}
}

func TestHTTP_ContextEnds_Stops(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "127.0.0.1:0"} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- HTTP{Endpoint: endpoint, Metrics: NewMetrics("v1", quiet())}.Run(ctx) }()
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(limit):
			t.Fatal("it goes on")
		}
	}
}

func TestHTTP_PortInUse_ErrorNamesTheFlag(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	err = HTTP{Endpoint: taken.Addr().String(), Metrics: NewMetrics("v1", quiet())}.Run(t.Context())
	require.ErrorContains(t, err, "serving metrics and probes at "+taken.Addr().String())
	require.True(t, strings.HasSuffix(err.Error(), "address already in use; choose another with --http-endpoint"), err)
}

// TestHTTP_ClientTakesAll_ProbesAnswered: the kubelet kills a plugin whose probes are not answered.
func TestHTTP_ClientTakesAll_ProbesAnswered(t *testing.T) {
	t.Parallel()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := free.Addr().String()
	require.NoError(t, free.Close())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	h := HTTP{Endpoint: at, Metrics: NewMetrics("v1", quiet()), Ready: func() error { return nil }, Note: func() string { return "" }}
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	ask := func(from string) error {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := &http.Client{Timeout: limit, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/healthz", http.NoBody)
		require.NoError(t, err)
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	require.Eventually(t, func() bool { return ask("127.0.0.1") == nil }, limit, time.Millisecond)
	for range listen.Pages.PerClient {
		held, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", at)
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Close() })
	}
	require.Error(t, ask("127.0.0.2"), "its share is taken")
	require.NoError(t, ask("127.0.0.1"))
}
