package mpsd

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/mpsd/state"
)

// After a restart of the container, the PID of the daemon or of a server may belong to another process.
func TestAdopt_PIDsOfOtherProcesses_NotKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	m.ensure(m.service())
	for _, p := range m.processes() {
		require.NoError(t, Linux{}.Kill(p))
		m.await(p)
	}
	other := exec.CommandContext(t.Context(), "cat")
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	m.end()
	changed, err := state.Read(m.dir().state())
	require.NoError(t, err)
	changed.Phase = state.Ready
	changed.Daemon.PID = other.Process.Pid
	changed.Processes = []hostfs.Process{changed.Daemon}
	raw, err := json.Marshal(changed)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(m.dir().state(), raw, 0o600))

	s := m.service()
	listed, _ := s.List(t.Context(), 0)
	require.Len(t, listed, 1)
	assert.Equal(t, gpu.MPSDead, listed[0].State)
	m.ensure(s)
	m.one()
	m.stop(s)
	require.NoError(t, stdin.Close())
	require.NoError(t, other.Wait(), "it exited by itself")
}

func TestAdopt_StateOfLaterVersion_UnknownKeysIgnoredAndDamagedEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	daemon := m.ensure(m.service())
	raw, err := os.ReadFile(m.dir().state())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(m.dir().state(), []byte(strings.Replace(string(raw), "{", `{"protocol":{"version":3},`, 1)), 0o600))
	assert.Equal(t, daemon.PID, m.ensure(m.service()).PID, "unknown keys are ignored")

	require.NoError(t, os.WriteFile(m.dir().state(), []byte("{"), 0o600))
	s := m.service()
	assert.Empty(t, m.processes(), "what cannot be adopted is ended")
	assert.NotEqual(t, daemon.PID, m.ensure(s).PID)
	m.one()
}

func TestEnsure_AtOnce_OneDaemon(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	var all sync.WaitGroup
	pids := make([]int, 4)
	for i := range pids {
		all.Go(func() {
			daemon, err := s.Ensure(t.Context(), daemonID, m.spec(), true)
			assert.NoError(t, err)
			pids[i] = daemon.PID
		})
	}
	all.Wait()
	for _, pid := range pids {
		assert.Equal(t, pids[0], pid)
	}
	m.one()
}

// waiting delays the start of one daemon.
type waiting struct {
	System
	dir     directory
	started chan struct{}
	proceed chan struct{}
}

func (w waiting) Start(c Command) (*Started, error) {
	if strings.HasPrefix(c.Log, string(w.dir)) {
		w.started <- struct{}{}
		<-w.proceed
	}
	return w.System.Start(c)
}

func TestEnsure_OtherDaemonStarts_NotAwaited(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	slow := waiting{System: Linux{}, dir: directory(filepath.Join(m.options.Dir, "slow")), started: make(chan struct{}), proceed: make(chan struct{})}
	m.options.System = slow
	s := m.service()
	done := make(chan error, 1)
	go func() {
		_, err := s.Ensure(context.WithoutCancel(t.Context()), "slow", m.spec(), false)
		done <- err
	}()
	<-slow.started
	m.ensure(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Ensure(ctx, "slow", m.spec(), false)
	require.ErrorContains(t, err, "waiting for another request for control daemon slow")
	close(slow.proceed)
	require.NoError(t, <-done)
	require.NoError(t, s.Stop(t.Context(), "slow"))
}

func TestEnsure_MIGDevice_DaemonOfTheDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	for _, args := range [][]string{{"-i", "0", "-c", "DEFAULT"}, {"-i", "0", "-mig", "1"}, {"mig", "-cgi", "19,19", "-C"}} {
		smi := exec.CommandContext(t.Context(), m.node.SMI(), args...)
		smi.Env = []string{"LD_LIBRARY_PATH=" + m.node.LibraryDir()}
		output, err := smi.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	device := m.node.Model.GPUs()[0].MIGDevices[1]
	spec := m.spec()
	spec.Device, spec.ActiveThreadPercentage = device.UUID, 0
	s := m.service()
	daemon, err := s.Ensure(t.Context(), daemonID, spec, true)
	require.NoError(t, err)
	require.Len(t, daemon.Servers, 1)
	assert.Contains(t, m.tenant(1000, "CUDA_VISIBLE_DEVICES="+device.UUID).connected(), "multiprocessors 16,")
	assert.Equal(t, 2, m.node.Model.GPUs()[0].MIGDevices[1].Clients, "the server and its client")

	spec.Device = m.node.Model.GPUs()[0].MIGDevices[0].UUID
	_, err = s.Ensure(t.Context(), daemonID, spec, true)
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, err, &clients, "another device than the one that clients use")
}
