package mpsd

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Drivers 535 and 550 serve clients of one user at a time, and start the server for the first client.
func TestEnsure_OldDriver_NoServerForAllUsers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, oldDriver)
	s := m.service()
	daemon := m.ensure(s)
	assert.False(t, daemon.MultiUser)
	assert.Empty(t, daemon.Servers)
	c := m.tenant(1000)
	assert.Contains(t, c.connected(), "multiprocessors 66, free 1488 MiB")
	limits, err := s.Limits(t.Context(), daemonID)
	require.NoError(t, err)
	want := gpu.MPSLimits{MemoryMiB: 1024, ActiveThreadPercentage: 50}
	listed, _ := s.List(t.Context(), 0)
	require.Len(t, listed[0].Servers, 1)
	assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{listed[0].Servers[0]: want}}, limits)
	var clients *gpu.MPSClientsError
	require.ErrorAs(t, s.Stop(t.Context(), daemonID), &clients)
	c.kill()
	m.stop(s)
}

func TestStart_WithoutServer_ClientsCannotFindDaemon(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	started, err := s.Ensure(t.Context(), daemonID, m.spec(), false)
	require.NoError(t, err)
	assert.Equal(t, gpu.MPSRunning, started.State)
	assert.Empty(t, started.Servers)
	assert.NoFileExists(t, filepath.Join(m.dir().client(), "control"))
	s = m.service()
	daemon := m.ensure(s)
	assert.Equal(t, started.PID, daemon.PID)
	assert.Len(t, daemon.Servers, 1)
	m.one()
	links, err := os.ReadDir(m.dir().client())
	require.NoError(t, err)
	require.Len(t, links, 2)
	assert.Equal(t, []string{"control", "log"}, []string{links[0].Name(), links[1].Name()})
}

func TestLimits_ChangedByOthers_Restored(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	d := s.daemons[daemonID]
	server := daemon.Servers[0]
	for spec, want := range map[gpu.MPSDaemonSpec]gpu.MPSLimits{
		{MemoryMiB: 512, ActiveThreadPercentage: 25}:   {MemoryMiB: 512, ActiveThreadPercentage: 25},
		{MemoryMiB: 2047, ActiveThreadPercentage: 100}: {MemoryMiB: 1024, ActiveThreadPercentage: 100},
		{}: {},
	} {
		_, err := d.command(t.Context(), "set_default_active_thread_percentage 10", "set_default_device_pinned_mem_limit 0 7M",
			ofServerCommand(server, "set_active_thread_percentage", "11"), ofServerCommand(server, "set_device_pinned_mem_limit", "0 8M"))
		require.NoError(t, err)
		limits, err := s.Limits(t.Context(), daemonID)
		require.NoError(t, err)
		assert.Equal(t, gpu.MPSLimitsInForce{
			Default: gpu.MPSLimits{MemoryMiB: 7, ActiveThreadPercentage: 10},
			Servers: map[int]gpu.MPSLimits{server: {MemoryMiB: 8, ActiveThreadPercentage: 11}},
		}, limits)
		restored, err := s.RestoreLimits(t.Context(), daemonID, spec)
		require.NoError(t, err)
		assert.Equal(t, spec.MemoryMiB, restored.Spec.MemoryMiB)
		assert.Equal(t, int64(shmSize), restored.Spec.ShmBytes)
		limits, err = s.Limits(t.Context(), daemonID)
		require.NoError(t, err)
		assert.Equal(t, gpu.MPSLimitsInForce{Default: want, Servers: map[int]gpu.MPSLimits{server: want}}, limits)
	}
	_, err := s.RestoreLimits(t.Context(), "b", m.spec())
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

// ignoring is a control daemon that ignores the first commands that set something.
type ignoring struct {
	System
	left int
}

func (i *ignoring) Run(ctx context.Context, c Command) (string, int, error) {
	if strings.HasPrefix(c.Input, "set_") && i.left > 0 {
		i.left--
		return "", 0, nil
	}
	return i.System.Run(ctx, c)
}

func TestEnsure_LimitsNotInForce_SetAgainThenError(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	m.options.System = &ignoring{System: Linux{}, left: attempts}
	s := m.service()
	_, err := s.Ensure(t.Context(), daemonID, m.spec(), true)
	require.ErrorContains(t, err, "starting MPS control daemon a5172723: the control daemon reports 0 MiB and 0 % after 2000 MiB and 50 % were set")
	assert.Empty(t, m.processes())
	listed, _ := s.List(t.Context(), 0)
	require.Len(t, listed, 1)
	assert.Equal(t, gpu.MPSDead, listed[0].State)
	require.NoError(t, s.Stop(t.Context(), daemonID))
	m.options.System = &ignoring{System: Linux{}, left: attempts - 1}
	m.ensure(m.service())
	m.one()
}

func ofServerCommand(server int, name, value string) string {
	return strings.Join([]string{name, strconv.Itoa(server), value}, " ")
}

func TestEnsure_DriverReplaced_RenewedWithoutClients(t *testing.T) {
	t.Parallel()
	m := newMachine(t, oldDriver)
	s := m.service()
	daemon := m.ensure(s)
	c := m.tenant(0)
	c.connected()
	m.node.ReplaceDriver(newDriver)
	listed, _ := s.List(t.Context(), 0)
	assert.True(t, listed[0].Outdated)
	assert.Equal(t, daemon.PID, m.ensure(s).PID, "with a client")
	assert.Equal(t, "allocated", c.more())
	c.kill()
	m.node.UnloadDriver()
	m.node.LoadDriver()
	m.eventually(func() bool { return m.ensure(s).PID != daemon.PID })
	listed, _ = s.List(t.Context(), 0)
	assert.False(t, listed[0].Outdated)
	assert.Equal(t, 2, listed[0].Starts)
	assert.True(t, listed[0].MultiUser)
}

func TestEnsure_RunningDaemon_KeepsItsSpec(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	daemon := m.ensure(s)
	other := m.spec()
	other.MemoryMiB, other.ShmBytes = 10, 2*shmSize
	kept, err := s.Ensure(t.Context(), daemonID, other, true)
	require.NoError(t, err)
	assert.Equal(t, daemon, kept)

	require.NoError(t, syscall.Kill(daemon.PID, syscall.SIGKILL))
	m.eventually(func() bool { listed, _ := s.List(t.Context(), 0); return listed[0].State == gpu.MPSDead })
	next, err := s.Ensure(t.Context(), daemonID, other, true)
	require.NoError(t, err)
	assert.Equal(t, other, next.Spec)
	assert.Contains(t, mountOptions(t, os.Getpid(), m.dir().shm()), "size=2048k")
}

// A broken GPU fails Prepare, not the programs.
func TestEnsure_GPULost_ErrorOfTheServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	_, err := m.node.Model.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 0, Return: model.GPUIsLost})
	require.NoError(t, err)
	s := m.service()
	_, err = s.Ensure(t.Context(), daemonID, m.spec(), true)
	require.ErrorContains(t, err, "starting the server of MPS control daemon a5172723: it exited: ")
	require.ErrorContains(t, err, "exited with status 1")
	assert.NoFileExists(t, filepath.Join(m.dir().client(), "control"))
	m.stop(s)
}

func TestEnsure_RenewedWithoutPrograms_ReportedAsDead(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	s := m.service()
	m.ensure(s)
	require.NoError(t, os.Remove(filepath.Join(m.node.Programs(), serverProgram)))
	other := m.spec()
	other.Device = "MIG-" + other.Device
	_, err := s.Ensure(t.Context(), daemonID, other, true)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	assert.Empty(t, m.processes())
	listed, _ := s.List(t.Context(), 0)
	require.Len(t, listed, 1)
	assert.Equal(t, gpu.MPSDead, listed[0].State)
	assert.Contains(t, listed[0].Error, "MPS is not supported here")
	m.stop(s)
}

func TestEnsure_NoPrograms_Unsupported(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	server := filepath.Join(m.node.Programs(), serverProgram)
	require.NoError(t, os.Rename(server, server+".moved"))
	s := m.service()
	_, err := s.Ensure(t.Context(), daemonID, m.spec(), true)
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.EqualError(t, unsupported, "MPS is not supported here: it needs nvidia-cuda-mps-control and nvidia-cuda-mps-server in "+
		"the driver root / (in usr/bin, bin, opt/bin, usr/sbin, sbin, usr/local/bin, run/current-system/sw/bin, usr/libexec/nvidia/tesla/bin, "+
		"usr/lib/wsl/lib, the root itself): install the driver's MPS programs there, or add their directory with --driver-search-dirs "+
		"(chart value nvidiaSearchDirs)")
	listed, _ := s.List(t.Context(), 0)
	assert.Empty(t, listed)
	sbin := filepath.Join(m.node.Root(), "usr/sbin")
	require.NoError(t, os.MkdirAll(sbin, 0o755))
	require.NoError(t, os.Rename(server+".moved", filepath.Join(sbin, serverProgram)))
	assert.Len(t, m.ensure(s).Servers, 1, "as Debian installs it")
}
