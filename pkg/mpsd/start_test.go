package mpsd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/allocation"
	"github.com/prism-gpu/prism/pkg/gpu"
)

func TestEnsure_MultiUserDriver_DaemonAndServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	programs := &counted{System: Linux{}}
	m.options.System = programs
	s := m.service()
	daemon := m.ensure(s)
	require.Len(t, daemon.Servers, 1)
	assert.Equal(t, gpu.MPSDaemon{
		ID: daemonID, Spec: m.spec(), State: gpu.MPSRunning, PID: daemon.PID, Servers: daemon.Servers, MultiUser: true, Starts: 1,
	}, daemon)
	assert.Len(t, m.processes(), 2)
	dir := m.dir()
	for path, want := range map[string]string{
		dir.pipe(): "700", dir.client(): "755", dir.shm(): "1777", dir.log(): "700", dir.lib(): "755", dir.injection(): "755",
	} {
		assert.Equal(t, want, mode(t, path), path)
	}
	for _, pid := range append(daemon.Servers, daemon.PID) {
		options := mountOptions(t, pid, "/dev/shm")
		assert.Equal(t, mountOptions(t, os.Getpid(), dir.shm()), options)
		for _, option := range []string{"noexec", "nosuid", "nodev", "size=1024k", "nr_inodes=4096"} {
			assert.Contains(t, options, option)
		}
		assert.NotEqual(t, options, mountOptions(t, os.Getpid(), "/dev/shm"))
		options = mountOptions(t, pid, filepath.Join("/dev/shm", injectionDir))
		for _, option := range []string{"tmpfs ro", "noexec", "nosuid", "nodev"} {
			assert.Contains(t, options, option)
		}
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", daemon.PID))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{
		"PATH=" + m.node.Programs(), "LD_LIBRARY_PATH=" + dir.lib(), "CUDA_VISIBLE_DEVICES=" + m.spec().Device,
		"CUDA_MPS_PIPE_DIRECTORY=" + dir.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + dir.log(), "",
	}, strings.Split(string(environment), "\x00"))

	serves := func(pid int) bool {
		return allocation.New(allocation.Options{DaemonsDir: m.options.Dir}).Identify([]uint32{uint32(pid)})[uint32(pid)].Server
	}
	assert.True(t, serves(daemon.Servers[0]), "the exporter knows the server by the daemon's state")
	assert.False(t, serves(os.Getpid()))

	a, b := m.tenant(1000), m.tenant(1001)
	assert.Equal(t, "multiprocessors 66, free 1488 MiB, total 81008 MiB", a.connected())
	b.connected()
	runs := programs.runs
	assert.Equal(t, daemon, m.ensure(s))
	assert.Equal(t, runs, programs.runs, "programs run by the second request")
	assert.Equal(t, 1, programs.starts)
	t.Log("programs run by the first request:", runs)
}
