package mpsd

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// savedFirst records for each killed process whether the saved state contains it.
type savedFirst struct {
	System
	dir directory

	mu            sync.Mutex
	saved, others []hostfs.Process
}

func (s *savedFirst) Kill(p hostfs.Process) error {
	saved, err := state.Read(s.dir.state())
	s.mu.Lock()
	if err == nil && (p == saved.Daemon || slices.Contains(saved.Processes, p)) {
		s.saved = append(s.saved, p)
	} else {
		s.others = append(s.others, p)
	}
	s.mu.Unlock()
	return s.System.Kill(p)
}

// TestEnd_ProcessKilled_SavedBefore: the next service could not find a killed process by its environment, which is gone. The server of an
// old driver, which the daemon started for a client, is not known before.
func TestEnd_ProcessKilled_SavedBefore(t *testing.T) {
	t.Parallel()
	m := newMachine(t, oldDriver)
	system := &savedFirst{System: m.options.System, dir: m.dir()}
	m.options.System = system
	s := m.service()
	daemon := m.ensure(s)
	c := m.tenant(1000)
	c.connected()
	require.NoError(t, Linux{}.Kill(processOf(t, daemon.PID)))
	m.eventually(func() bool {
		listed, _ := s.List(t.Context(), 0)
		return listed[0].State == gpu.MPSDead
	})
	system.mu.Lock()
	assert.NotEmpty(t, system.saved, "the server")
	assert.Empty(t, system.others)
	system.mu.Unlock()
	c.kill()
	m.stop(s)
}

// TestEnsure_DaemonKilled_CauseKept: a daemon that runs again says how the one before exited, whether the service noticed that by itself or
// with the request.
func TestEnsure_DaemonKilled_CauseKept(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	for range 3 {
		killed := processOf(t, m.ensure(s).PID)
		require.NoError(t, Linux{}.Kill(killed))
		m.await(killed)
		again := m.ensure(s)
		assert.NotEqual(t, killed.PID, again.PID)
		assert.Contains(t, again.LastExit, "it was killed by signal 9 (killed)")
	}
	m.stop(s)
	assert.Empty(t, m.ensure(s).LastExit)
	m.stop(s)
}

// processOf returns the process with that PID.
func processOf(t *testing.T, pid int) hostfs.Process {
	t.Helper()
	p, exists := processes.Process(pid)
	require.True(t, exists)
	return p
}
