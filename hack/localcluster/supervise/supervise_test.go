//go:build linux

package supervise

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve runs a supervisor in this process; its children are this process's children.
func serve(t *testing.T, services ...Service) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sup")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "control")
	for i := range services {
		services[i].Log = filepath.Join(dir, services[i].Name+".log")
	}
	listener, err := Listen(socket)
	require.NoError(t, err)
	s := New(services, os.Environ(), reaper)
	go s.Serve(listener) //nolint:errcheck // ends with the listener
	t.Cleanup(func() {
		listener.Close()
		for _, u := range s.units {
			assert.NoError(t, u.stop())
		}
	})
	return socket
}

var reaper = NewReaper()

func pidOf(t *testing.T, socket, service string) int {
	t.Helper()
	all, err := Send(socket, List, "")
	require.NoError(t, err)
	for _, s := range all {
		if s.Name == service {
			return s.PID
		}
	}
	return -1
}

func TestSupervisor_StartStopRestart_ProcessFollows(t *testing.T) {
	socket := serve(t, Service{Name: "sleeper", Args: []string{"/bin/sleep", "1000"}})
	assert.Zero(t, pidOf(t, socket, "sleeper"))
	_, err := Send(socket, Start, "sleeper")
	require.NoError(t, err)
	first := pidOf(t, socket, "sleeper")
	require.NotZero(t, first)
	_, err = Send(socket, Start, "sleeper")
	require.NoError(t, err)
	assert.Equal(t, first, pidOf(t, socket, "sleeper"), "a start of what runs changes nothing")
	_, err = Send(socket, Restart, "sleeper")
	require.NoError(t, err)
	assert.NotEqual(t, first, pidOf(t, socket, "sleeper"))
	_, err = Send(socket, Stop, "sleeper")
	require.NoError(t, err)
	assert.Zero(t, pidOf(t, socket, "sleeper"))
}

// TestReaper_UnderNohup_ProgramsHeed runs this test again like nohup, and like a shell in the background.
func TestReaper_UnderNohup_ProgramsHeed(t *testing.T) {
	const into = "SUPERVISE_TEST_STATUS"
	cmd := exec.Command("/bin/sh", "-c", `trap "" HUP INT QUIT; exec "$0" -test.run "^$1\$"`, os.Args[0], t.Name())
	status := os.Getenv(into)
	if status != "" {
		cmd = exec.Command("/bin/cp", "/proc/self/status", status)
	} else {
		status = filepath.Join(t.TempDir(), "status")
	}
	cmd.Env = append(os.Environ(), into+"="+status)
	child, err := reaper.Start(cmd)
	require.NoError(t, err)
	ended := <-child.Exit
	require.Zero(t, ended.ExitStatus())
	text, err := os.ReadFile(status)
	require.NoError(t, err)
	_, text, _ = bytes.Cut(text, []byte("\nSigIgn:\t"))
	ignored, err := strconv.ParseUint(string(text[:16]), 16, 64)
	require.NoError(t, err)
	for _, heeded := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		assert.Zero(t, ignored&(1<<(heeded-1)), heeded)
	}
}

func TestSupervisor_ProcessKilled_StartedAgain(t *testing.T) {
	socket := serve(t, Service{Name: "sleeper", Args: []string{"/bin/sleep", "1000"}})
	_, err := Send(socket, Start, "sleeper")
	require.NoError(t, err)
	first := pidOf(t, socket, "sleeper")
	require.NoError(t, Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		pid := pidOf(t, socket, "sleeper")
		return pid != 0 && pid != first
	}, time.Minute, 20*time.Millisecond)
}

func TestSupervisor_StartFails_EndOfLogReported(t *testing.T) {
	socket := serve(t, Service{
		Name: "broken", Args: []string{"/bin/sh", "-c", "echo bad flag >&2; exit 3"}, Probe: Probe{Socket: "/nowhere"},
	})
	_, err := Send(socket, Start, "broken")
	require.EqualError(t, err, "starting broken: it ended with exit status 3; the end of its log: bad flag")
	_, err = Send(socket, Start, "other")
	require.EqualError(t, err, `unknown service "other"`)
	_, err = Send(socket, "dance", "broken")
	assert.EqualError(t, err, `unknown order "dance"`)
}

func TestKill_NotOneProcess_Refused(t *testing.T) {
	// Signal 0 only checks, so that the test is harmless if the refusal is missing.
	for _, pid := range []int{-1, 0, 1, -5} {
		assert.ErrorContains(t, Kill(pid, 0), "not the id of one process", pid)
	}
	require.NoError(t, Kill(os.Getpid(), 0))
}

func TestReaperStart_Process_ExitReported(t *testing.T) {
	child, err := reaper.Start(exec.Command("/bin/true"))
	require.NoError(t, err)
	assert.Greater(t, child.PID, 1)
	assert.Equal(t, 0, (<-child.Exit).ExitStatus())
}

func TestProbe_HealthChanges_Followed(t *testing.T) {
	var sick atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	// On a busy machine a probe may reach its timeout.
	require.Eventually(t, func() bool { return Probe{URL: server.URL}.check() == nil }, time.Minute, time.Millisecond)
	sick.Store(true)
	require.Eventually(t, func() bool {
		err := Probe{URL: server.URL}.check()
		return err != nil && strings.Contains(err.Error(), "503")
	}, time.Minute, time.Millisecond)
	assert.NoError(t, Probe{}.check())
	assert.Error(t, Probe{Socket: "/nowhere"}.check())
}
