package mpsd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/client"
)

// serve serves until the test ends or stop is called.
func serve(t *testing.T, s *Service, socket string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, socket) }()
	require.Eventually(t, func() bool {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		return err == nil && connection.Close() == nil
	}, deadline, time.Millisecond)
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		assert.NoError(t, <-done)
	}
	t.Cleanup(stop)
	return stop
}

// raw makes a request like a client of another version.
func raw(t *testing.T, socket, method, path, body string) (int, client.Failure) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://mpsd"+path, strings.NewReader(body))
	require.NoError(t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var f client.Failure
	if len(bytes.TrimSpace(text)) > 0 {
		require.NoError(t, json.Unmarshal(text, &f), "%s", text)
	}
	return response.StatusCode, f
}

// empty returns a service on a node without a driver.
func empty(t *testing.T) (s *Service, socket string) {
	t.Helper()
	run, err := os.MkdirTemp("", "mpsd-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(run) })
	s, err = New(t.Context(), Options{Dir: filepath.Join(run, "mps"), Host: hostfs.New(run), System: Linux{}, Version: "v7"})
	require.NoError(t, err)
	return s, filepath.Join(run, "mpsd.sock")
}

func TestServe_InvalidRequests_Sentences(t *testing.T) {
	t.Parallel()
	s, socket := empty(t)
	serve(t, s, socket)
	const spec = `{"gpu":"GPU-1","device":"GPU-1","shmBytes":1}`
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v2", "", 404, "the MPS service of version v7 does not support GET /v2"},
		{"POST", "/v1/daemons/a", "", 404, "the MPS service of version v7 does not support POST /v1/daemons/a"},
		{"GET", "/v1/daemons?after=x", "", 400, `after must be an integer, got "x"`},
		{"GET", "/v1/daemons/a/limits", "", 404, "MPS control daemon a is not running: not found"},
		{"PUT", "/v1/daemons/a?limits=restore", spec, 404, "MPS control daemon a is not running: not found"},
		{"PUT", "/v1/daemons/%2e%2e%2fx", spec, 400, `the ID of an MPS control daemon must consist of lower case letters, digits and dashes, got "../x"`},
		{"DELETE", "/v1/daemons/A", "", 400, `the ID of an MPS control daemon must consist of lower case letters, digits and dashes, got "A"`},
		{"PUT", "/v1/daemons/a", "", 400, "invalid spec of an MPS control daemon: EOF"},
		{"PUT", "/v1/daemons/a", `{}`, 400, "device is required: the UUID of a GPU or MIG device"},
		{"PUT", "/v1/daemons/a", strings.Replace(spec, "GPU-1", "", 2), 400, "device is required: the UUID of a GPU or MIG device"},
		{"PUT", "/v1/daemons/a", `{"device":"a b"}`, 400, `device must be the UUID of a GPU or MIG device, got "a b"`},
		{"PUT", "/v1/daemons/a", `{"device":"a","memoryMiB":-1}`, 400, "memoryMiB must be greater than or equal to 0, got -1"},
		{"PUT", "/v1/daemons/a", `{"device":"a","activeThreadPercentage":101}`, 400, "activeThreadPercentage must be between 0 and 100, got 101"},
		{"PUT", "/v1/daemons/a", `{"device":"a"}`, 400, "shmBytes must be greater than 0, got 0"},
		{"PUT", "/v1/daemons/a", `{"device":"` + strings.Repeat("a", bodyLimit) + `"}`, 400, "invalid spec of an MPS control daemon: http: request body too large"},
	} {
		status, f := raw(t, socket, c.method, c.path, c.body)
		assert.Equal(t, c.status, status, c.path)
		assert.Equal(t, c.want, f.Error)
	}
	status, f := raw(t, socket, "PUT", "/v1/daemons/a", strings.Replace(spec, "{", `{"protocol":3,`, 1))
	assert.Equal(t, 500, status, "the unknown field is ignored")
	assert.Equal(t, client.KindDriver, f.Kind)
	status, _ = raw(t, socket, "DELETE", "/v1/daemons/a", "")
	assert.Equal(t, 204, status)
	assert.NoDirExists(t, filepath.Join(s.Dir, "a"))
}

func TestServe_Client_SameAnswers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	socket := filepath.Join(filepath.Dir(m.options.Dir), "mpsd.sock")
	stop := serve(t, m.service(), socket)
	assert.Equal(t, "600", mode(t, socket))
	c := client.New(socket)
	ctx := t.Context()
	info, err := c.Info(ctx)
	require.NoError(t, err)
	assert.Equal(t, client.Info{Version: "test", Driver: string(newDriver)}, info)
	_, revision, err := c.Daemons(ctx, 0)
	require.NoError(t, err)

	changed := make(chan []gpu.MPSDaemon, 1)
	go func() {
		daemons, _, _ := c.Daemons(ctx, revision)
		changed <- daemons
	}()
	started, err := c.Start(ctx, daemonID, m.spec())
	require.NoError(t, err)
	assert.Empty(t, started.Servers)
	select {
	case daemons := <-changed:
		require.Len(t, daemons, 1)
		assert.Equal(t, started.PID, daemons[0].PID)
	case <-time.After(deadline):
		t.Fatal("the change was not reported")
	}
	daemon, err := c.Ensure(ctx, daemonID, m.spec())
	require.NoError(t, err)
	tenant := m.tenant(1000)
	tenant.connected()

	stop()
	serve(t, m.service(), socket) // replaces the socket
	adopted, err := c.Ensure(ctx, daemonID, m.spec())
	require.NoError(t, err)
	assert.Equal(t, daemon, adopted)
	daemons, later, err := c.Daemons(ctx, revision)
	require.NoError(t, err)
	assert.Greater(t, later, revision)
	assert.Equal(t, []gpu.MPSDaemon{daemon}, daemons)
	require.NoError(t, c.RestoreLimits(ctx, daemonID, m.spec()))
	limits, err := c.Limits(ctx, daemonID)
	require.NoError(t, err)
	want := gpu.MPSLimits{MemoryMiB: 1024, ActiveThreadPercentage: 50}
	assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{daemon.Servers[0]: want}}, limits)
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, c.Stop(ctx, daemonID), &clients)
	assert.Equal(t, []int{tenant.pid()}, clients.PIDs)
	tenant.kill()
	m.eventually(func() bool { return c.Stop(ctx, daemonID) == nil })
	m.gone()
}

// Both the mode of the socket and the service keep other users out.
func TestServe_PeerIsNotRoot_Refused(t *testing.T) {
	t.Parallel()
	s, socket := empty(t)
	serve(t, s, socket)
	require.NoError(t, os.Chmod(filepath.Dir(socket), 0o755))
	_, err := dialAs(t, socket, 1000)
	require.ErrorIs(t, err, unix.EACCES, "by the mode")
	require.NoError(t, os.Chmod(socket, 0o666))
	for uid, want := range map[int]string{
		1000: `{"error":"user 1000 is refused: only root may control MPS daemons"}`, 0: `"version":"v7"`,
	} {
		connection, err := dialAs(t, socket, uid)
		require.NoError(t, err)
		_, err = io.WriteString(connection, "GET /v1 HTTP/1.0\r\n\r\n")
		require.NoError(t, err)
		text, err := io.ReadAll(connection)
		require.NoError(t, err)
		assert.Contains(t, string(text), want)
		require.NoError(t, connection.Close())
	}
}

// dialAs connects as another user, set for one thread.
func dialAs(t *testing.T, socket string, uid int) (net.Conn, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	become := func(uid int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		require.Zero(t, errno)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become(uid)
	defer become(0)
	return (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
}
