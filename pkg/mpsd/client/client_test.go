package client

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const deadline = time.Minute

// at returns a path that is short enough for a socket.
func at(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpsd-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "mpsd.sock")
}

// stale returns the socket of a service that has exited.
func stale(t *testing.T) string {
	t.Helper()
	socket := at(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	return socket
}

func serve(t *testing.T, socket string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: deadline}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func TestClient_Requests_PathsAndBodies(t *testing.T) {
	t.Parallel()
	socket := at(t)
	var seen []string
	serve(t, socket, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, `{"id":"a","version":"v1","revision":7,"daemons":[{"id":"a","unknown":1}],"default":{"memoryMiB":512},"servers":null,"new":{}}`)
	})
	c := New(socket)
	ctx := t.Context()
	spec := gpu.MPSDaemonSpec{GPU: "GPU-1", Device: "GPU-1", MemoryMiB: 512, ShmBytes: 1 << 20}
	info, err := c.Info(ctx)
	require.NoError(t, err)
	assert.Equal(t, Info{Version: "v1"}, info)
	daemons, revision, err := c.Daemons(ctx, 6)
	require.NoError(t, err)
	assert.Equal(t, int64(7), revision)
	assert.Equal(t, []gpu.MPSDaemon{{ID: "a"}}, daemons)
	for _, put := range []func(context.Context, gpu.MPSDaemonID, gpu.MPSDaemonSpec) (gpu.MPSDaemon, error){c.Start, c.StartNew, c.Ensure} {
		daemon, err := put(ctx, "a", spec)
		require.NoError(t, err)
		assert.Equal(t, gpu.MPSDaemonID("a"), daemon.ID)
	}
	require.NoError(t, c.RestoreLimits(ctx, "a", spec))
	limits, err := c.Limits(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, int64(512), limits.Default.MemoryMiB)
	require.NoError(t, c.Stop(ctx, "a"))
	const body = `{"gpu":"GPU-1","device":"GPU-1","memoryMiB":512,"shmBytes":1048576}`
	assert.Equal(t, []string{
		"GET /v1 ", "GET /v1/daemons?after=6 ", "PUT /v1/daemons/a?server=false " + body, "PUT /v1/daemons/a?server=false&unused=true " + body, "PUT /v1/daemons/a " + body,
		"PUT /v1/daemons/a?limits=restore " + body, "GET /v1/daemons/a/limits ", "DELETE /v1/daemons/a ",
	}, seen)
}

func TestClient_Failures_TypedErrors(t *testing.T) {
	t.Parallel()
	socket := at(t)
	var answer Failure
	serve(t, socket, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(answer)
	})
	stop := func(f Failure) error {
		answer = f
		return New(socket).Stop(t.Context(), "a")
	}
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, stop(Failure{Error: "clients", Kind: KindClients, PIDs: []int{7}}), &clients)
	assert.Equal(t, []int{7}, clients.PIDs)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, stop(Failure{Error: "no", Kind: KindUnsupported, Feature: "MPS", Needs: "programs"}), &unsupported)
	assert.Equal(t, "programs", unsupported.Needs)
	for kind, want := range kinds {
		err := stop(Failure{Error: "a sentence", Kind: kind})
		require.ErrorIs(t, err, want)
		require.EqualError(t, err, "a sentence")
	}
	require.EqualError(t, stop(Failure{Error: "from a later version", Kind: "New"}), "from a later version")
	require.ErrorContains(t, stop(Failure{}), "the MPS service returned status 409")
}

// The socket of a service that has exited refuses connections, until the next service replaces it.
func TestClient_ServiceRestarts_RequestRepeated(t *testing.T) {
	t.Parallel()
	socket := stale(t)
	done := make(chan error, 1)
	c := New(socket)
	go func() {
		_, err := c.Ensure(t.Context(), "a", gpu.MPSDaemonSpec{})
		done <- err
	}()
	var requests atomic.Int32
	next := socket + ".new"
	serve(t, next, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = connection.Close() // no answer
			}
			assert.NoError(t, err)
			return
		}
		_, _ = io.WriteString(w, `{"id":"a"}`)
	})
	require.NoError(t, os.Rename(next, socket))
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(deadline):
		t.Fatal("no answer")
	}
	assert.Equal(t, int32(2), requests.Load())
}

// A restarting service leaves its socket, so on a node without a socket no service will answer soon.
func TestClient_NoSocket_UnavailableAtOnce(t *testing.T) {
	t.Parallel()
	c := New(at(t))
	c.restartTime = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for name, request := range map[string]func() error{
		"daemons": func() error { _, _, err := c.Daemons(ctx, 0); return err },
		"start":   func() error { _, err := c.Start(ctx, "a", gpu.MPSDaemonSpec{}); return err },
		"ensure":  func() error { _, err := c.Ensure(ctx, "a", gpu.MPSDaemonSpec{}); return err },
		"stop":    func() error { return c.Stop(ctx, "a") },
	} {
		err := request()
		require.ErrorIs(t, err, gpu.ErrMPSUnavailable, name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		require.NoError(t, ctx.Err(), name)
	}
}

func TestClient_ServiceGone_UnavailableAfterRepeats(t *testing.T) {
	t.Parallel()
	c := New(stale(t))
	c.restartTime = 0
	require.ErrorIs(t, c.Stop(t.Context(), "a"), gpu.ErrMPSUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	c.restartTime = time.Hour
	_, err := c.Probe(ctx)
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
	require.NoError(t, ctx.Err(), "it is not repeated")
	cancel()
	_, err = c.Ensure(ctx, "a", gpu.MPSDaemonSpec{})
	require.ErrorIs(t, err, gpu.ErrMPSUnavailable)
}

// TestClient_SlowService_NotUnavailable: the service runs and may complete the request, so the error must not say that it is unavailable.
func TestClient_SlowService_NotUnavailable(t *testing.T) {
	t.Parallel()
	socket := at(t)
	asked, answers := make(chan struct{}, 2), make(chan struct{})
	serve(t, socket, func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-answers
	})
	t.Cleanup(func() { close(answers) })
	for name, request := range map[string]func(ctx context.Context) error{
		"start": func(ctx context.Context) error {
			_, err := New(socket).StartNew(ctx, "a", gpu.MPSDaemonSpec{})
			return err
		},
		"probe": func(ctx context.Context) error { _, err := New(socket).Probe(ctx); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- request(ctx) }()
		<-asked
		cancel()
		err := <-done
		require.ErrorIs(t, err, gpu.ErrTimeout, name)
		require.NotErrorIs(t, err, gpu.ErrMPSUnavailable, name)
		require.ErrorContains(t, err, "it may do so later")
	}
}
