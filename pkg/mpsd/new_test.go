package mpsd

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// file returns the path of a file that a client creates in /dev/shm.
func (m *machine) file() string { return filepath.Join(m.dir().shm(), "of-client") }

// startNew starts a daemon for the first claim of a device.
func (m *machine) startNew(s *Service, spec gpu.MPSDaemonSpec) gpu.MPSDaemon {
	m.t.Helper()
	daemon, err := s.StartNew(m.t.Context(), daemonID, spec)
	require.NoError(m.t, err)
	require.Equal(m.t, gpu.MPSRunning, daemon.State)
	require.Equal(m.t, spec, daemon.Spec)
	return daemon
}

// TestStartNew_LeftByEarlierClaim_Replaced: the next claim gets neither the daemon's settings nor the files of its clients, whether the
// daemon runs or exited with the service's pod. If a daemon is restarted for its present claims, its directory is kept.
func TestStartNew_LeftByEarlierClaim_Replaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	for name, exits := range map[string]func(daemon gpu.MPSDaemon){
		"the daemon runs": func(gpu.MPSDaemon) {},
		"the daemon exited with the service": func(gpu.MPSDaemon) {
			m.end()
			for _, p := range m.processes() {
				require.NoError(t, Linux{}.Kill(p))
				m.await(p)
			}
		},
	} {
		earlier := m.ensure(m.service())
		require.NoError(t, os.WriteFile(m.file(), []byte("of an earlier claim"), 0o644))
		exits(earlier)
		again := m.ensure(m.service())
		assert.FileExists(t, m.file(), name)
		exits(again)
		daemon := m.startNew(m.service(), m.spec())
		assert.NotEqual(t, again.PID, daemon.PID, name)
		assert.Equal(t, 1, daemon.Starts, name)
		assert.NoFileExists(t, m.file(), name)
		m.ensure(m.service())
		m.one(name)
		m.stop(m.service())
	}
}

// TestStartNew_NotReady_KeptIfSettingsAreEqual: the answer to the request was lost, or the service was killed before it answered.
func TestStartNew_NotReady_KeptIfSettingsAreEqual(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	first := m.startNew(m.service(), m.spec())
	assert.Equal(t, first.PID, m.startNew(m.service(), m.spec()).PID)
	other := m.spec()
	other.MemoryMiB = 512
	second := m.startNew(m.service(), other)
	assert.NotEqual(t, first.PID, second.PID)
	limits, err := m.current.Limits(t.Context(), daemonID)
	require.NoError(t, err)
	assert.Equal(t, int64(512), limits.Default.MemoryMiB)
	m.stop(m.current)
}

func TestStartNew_ClientsConnected_Refused(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	c := m.tenant(1000)
	c.connected()
	_, err := s.StartNew(t.Context(), daemonID, m.spec())
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, err, &clients)
	assert.Equal(t, []int{c.pid()}, clients.PIDs)
	assert.Equal(t, "allocated", c.more())
	assert.NoError(t, syscall.Kill(daemon.PID, 0), "it runs")
	c.kill()
	m.stop(s)
}

// TestStartNew_KilledAtEveryFaultPoint_NextServiceCompletes: nothing of the earlier claim is left, wherever the service was killed.
func TestStartNew_KilledAtEveryFaultPoint_NextServiceCompletes(t *testing.T) {
	shards(t, func(t *testing.T, m *machine, first, step int) {
		at := first
		for ; ; at += step {
			m.ensure(m.service())
			require.NoError(t, os.WriteFile(m.file(), nil, 0o644))
			killed := m.killedAt("new", at)
			m.startNew(m.service(), m.spec())
			require.NoFileExists(t, m.file(), "fault point %d", at)
			m.ensure(m.current)
			m.one("fault point ", at)
			m.stop(m.current)
			if !killed {
				break
			}
		}
		assert.Greater(t, at, 20)
	})
}
