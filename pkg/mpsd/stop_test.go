package mpsd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

func TestStop_ClientsConnected_RefusedWithPIDs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	a, b := m.tenant(1000), m.tenant(1001)
	a.connected()
	b.connected()
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, s.Stop(t.Context(), daemonID), &clients)
	assert.ElementsMatch(t, []int{a.pid(), b.pid()}, clients.PIDs)
	assert.Equal(t, daemon, m.ensure(s))
	a.kill()
	m.eventually(func() bool {
		err := s.Stop(t.Context(), daemonID)
		require.ErrorAs(t, err, &clients)
		return len(clients.PIDs) == 1
	})
	assert.Equal(t, "allocated", b.more())
	b.kill()
	m.stop(s)
	require.NoError(t, s.Stop(t.Context(), daemonID), "of an absent daemon")
	listed, _ := s.List(t.Context(), 0)
	assert.Empty(t, listed)
}

// quit returns when the server has exited, but a hung server does not exit.
func TestStop_ServerHangs_Killed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	s.Times.Ask = 3 * time.Second
	require.NoError(t, syscall.Kill(daemon.Servers[0], syscall.SIGSTOP))
	require.NoError(t, s.Stop(t.Context(), daemonID))
	m.gone()
}

// deaf is a daemon that does not exit by itself.
type deaf struct{ System }

func (d deaf) Run(ctx context.Context, c Command) (string, int, error) {
	if c.Input == "quit\n" {
		return "", 1, nil
	}
	return d.System.Run(ctx, c)
}

func TestStop_DaemonDoesNotQuit_KilledWithServers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	m.options.System = deaf{Linux{}}
	m.options.Times.Quit = 10 * time.Millisecond
	s := m.service()
	m.ensure(s)
	require.NoError(t, s.Stop(t.Context(), daemonID))
	m.gone()
}

// unkillable is a process that is blocked in the kernel.
type unkillable struct {
	deaf
	pid *int
}

func (u unkillable) Kill(p hostfs.Process) error {
	if p.PID == *u.pid {
		return nil
	}
	done, err := exited(p)
	if err == nil {
		err = u.System.Kill(p)
	}
	if err == nil { // processes that can be killed exit within the limit
		select {
		case <-done:
		case <-time.After(deadline):
			err = fmt.Errorf("process %d was killed and has not exited", p.PID)
		}
	}
	return err
}

func TestStop_ProcessCannotBeKilled_UnstoppableUntilItExits(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	var pid int
	m.options.System = unkillable{deaf{Linux{}}, &pid}
	m.options.Times.Quit, m.options.Times.Kill = 10*time.Millisecond, 10*time.Millisecond
	s := m.service()
	daemon := m.ensure(s)
	pid = daemon.Servers[0]
	for range 2 {
		err := s.Stop(t.Context(), daemonID)
		require.ErrorIs(t, err, gpu.ErrInUse)
		var stuck *UnstoppableError
		require.ErrorAs(t, err, &stuck)
		assert.Equal(t, []int{pid}, stuck.PIDs)
		listed, _ := s.List(t.Context(), 0)
		require.Len(t, listed, 1)
		assert.Equal(t, gpu.MPSUnstoppable, listed[0].State)
		assert.Equal(t, err.Error(), listed[0].Error)
		_, err = s.Ensure(t.Context(), daemonID, m.spec(), true)
		require.ErrorIs(t, err, gpu.ErrInUse, "nothing is started beside it")
		s = m.service() // the next service knows it, too
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	m.eventually(func() bool { return len(m.processes()) == 0 })
	m.options.Times.Kill = longTimes().Kill // a process loses its command line shortly before it has exited
	s = m.service()
	assert.Equal(t, 2, m.ensure(s).Starts)
	m.stop(s)
}

// A container that keeps running connects again: its directories are the same.
func TestDaemon_Dies_ServersKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	_, revision := s.List(t.Context(), 0)
	before := m.tenant(1000)
	before.connected()
	container := func() (inodes []uint64) {
		for _, path := range []string{m.dir().client(), m.dir().shm()} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			stat, ok := info.Sys().(*syscall.Stat_t)
			require.True(t, ok)
			inodes = append(inodes, stat.Dev, stat.Ino)
		}
		return inodes
	}
	mounted := container()
	require.NoError(t, os.WriteFile(filepath.Join(m.dir().shm(), "of-a-client"), nil, 0o600))
	require.NoError(t, syscall.Kill(daemon.PID, syscall.SIGKILL))
	listed, next := s.List(t.Context(), revision)
	assert.Greater(t, next, revision)
	m.eventually(func() bool { listed, _ = s.List(t.Context(), 0); return listed[0].State == gpu.MPSDead })
	assert.Equal(t, daemon.PID, listed[0].PID)
	assert.True(t, strings.HasPrefix(listed[0].Error, "it was killed by signal 9 (killed); its log ends: "), listed[0].Error)
	assert.Empty(t, m.processes(), "the server of a daemon that is killed keeps the GPU")
	assert.Equal(t, "cuMemAlloc_v2: 806", before.more())
	_, err := s.Limits(t.Context(), daemonID)
	require.ErrorIs(t, err, gpu.ErrNotFound)

	again := m.ensure(s)
	assert.Equal(t, 2, again.Starts)
	assert.NotEqual(t, daemon.PID, again.PID)
	assert.Equal(t, mounted, container())
	assert.FileExists(t, filepath.Join(m.dir().shm(), "of-a-client"))
	after := m.tenant(1000)
	after.connected()
}

// A client started the server again, and the server still reports the fault.
func TestEnsure_ServerInFault_Present(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	require.NoError(t, syscall.Kill(daemon.Servers[0], syscall.SIGKILL))
	m.eventually(func() bool { listed, _ := s.List(t.Context(), 0); return len(listed[0].Servers) == 0 })
	c := m.tenant(1000)
	c.connected()
	_, err := c.in.Write([]byte("f"))
	require.NoError(t, err)
	assert.Contains(t, c.line(), "700")
	d := s.daemons[daemonID]
	servers, err := d.servers(t.Context())
	require.NoError(t, err)
	require.Len(t, servers, 1)
	m.eventually(func() bool {
		answers, err := d.ask(t.Context(), fmt.Sprintf("get_server_status %d", servers[0]))
		return err == nil && slices.Equal(answers[0], []string{"FAULT"})
	})
	assert.Equal(t, servers, m.ensure(s).Servers)
	c.kill()
	m.stop(s)
}

func TestServer_Exits_NextRequestStartsIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	_, revision := s.List(t.Context(), 0)
	require.NoError(t, syscall.Kill(daemon.Servers[0], syscall.SIGKILL))
	listed, _ := s.List(t.Context(), revision)
	require.Len(t, listed, 1)
	assert.Empty(t, listed[0].Servers)
	assert.Equal(t, gpu.MPSRunning, listed[0].State)
	again := m.ensure(s)
	assert.Equal(t, daemon.PID, again.PID)
	assert.Len(t, again.Servers, 1)
	m.one()
}
