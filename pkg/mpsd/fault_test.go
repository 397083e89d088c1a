package mpsd

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

const faultEnv = "MPSD_TEST_FAULT"

// faultRun is a service in a process of its own that is killed before one of its effects.
type faultRun struct {
	Dir, Root string
	Spec      gpu.MPSDaemonSpec
	// Operation is put, new, delete or restore.
	Operation string
	// At is the effect, from 1.
	At int
}

// faulty is killed before the effect whose number is at.
type faulty struct {
	System
	at, links int
}

func (f *faulty) effect() {
	if f.at--; f.at == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (f *faulty) MakeDir(path string, perm fs.FileMode) error {
	f.effect()
	return f.System.MakeDir(path, perm)
}

func (f *faulty) MakeFIFO(path string) error {
	f.effect()
	return f.System.MakeFIFO(path)
}

func (f *faulty) Write(path string, data []byte) error {
	f.effect()
	return f.System.Write(path, data)
}

func (f *faulty) Link(from, to string) error {
	f.effect()
	return f.System.Link(from, to)
}

// Symlink is one fault point for each tenth of the libraries.
func (f *faulty) Symlink(target, path string) error {
	if f.links++; f.links%10 == 1 {
		f.effect()
	}
	return f.System.Symlink(target, path)
}

func (f *faulty) Remove(path string) error {
	f.effect()
	return f.System.Remove(path)
}

func (f *faulty) Mount(path string, bytes int64, mounted bool) error {
	f.effect()
	return f.System.Mount(path, bytes, mounted)
}

func (f *faulty) ReplaceByDir(parent, name string) error {
	f.effect()
	return f.System.ReplaceByDir(parent, name)
}

func (f *faulty) MountEmpty(path string) error {
	f.effect()
	return f.System.MountEmpty(path)
}

func (f *faulty) Unmount(path string) error {
	f.effect()
	return f.System.Unmount(path)
}

func (f *faulty) Start(c Command) (*Started, error) {
	f.effect()
	return f.System.Start(c)
}

func (f *faulty) Run(ctx context.Context, c Command) (string, int, error) {
	f.effect()
	return f.System.Run(ctx, c)
}

func (f *faulty) Kill(p hostfs.Process) error {
	f.effect()
	return f.System.Kill(p)
}

// runUntilFault is the process of the service.
func runUntilFault() int {
	var run faultRun
	err := json.Unmarshal([]byte(os.Getenv(faultEnv)), &run)
	if err == nil {
		err = os.Unsetenv(faultEnv)
	}
	if err == nil {
		err = run.do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (run faultRun) do() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := New(ctx, Options{
		Dir: run.Dir, Host: hostfs.New(run.Root), System: &faulty{System: Linux{}, at: run.At}, Program: self, Version: "killed", Times: longTimes(),
	})
	if err != nil {
		return err
	}
	switch run.Operation {
	case "put":
		_, err = s.Ensure(ctx, daemonID, run.Spec, true)
	case "new":
		_, err = s.StartNew(ctx, daemonID, run.Spec)
	case "delete":
		err = s.Stop(ctx, daemonID)
	case "restore":
		_, err = s.RestoreLimits(ctx, daemonID, run.Spec)
	}
	return err
}

// killedAt replaces the service by one that runs the operation and is killed at a fault point, and reports whether it was killed. A daemon
// with clients is not stopped.
func (m *machine) killedAt(operation string, at int) bool {
	m.t.Helper()
	m.end()
	run, err := json.Marshal(faultRun{Dir: m.options.Dir, Root: m.node.Root(), Spec: m.spec(), Operation: operation, At: at})
	require.NoError(m.t, err)
	command := exec.CommandContext(m.t.Context(), m.options.Program)
	command.Env = append(os.Environ(), faultEnv+"="+string(run))
	output, _ := command.CombinedOutput()
	require.NotNil(m.t, command.ProcessState)
	if command.ProcessState.ExitCode() > 0 {
		require.Contains(m.t, string(output), "MPS clients are still connected")
	}
	return command.ProcessState.ExitCode() < 0
}

// control counts the running control daemons and their servers.
func (m *machine) control() (controls, servers int) {
	for _, p := range m.processes() {
		if program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); program == m.node.Programs()+"/"+controlProgram {
			controls++
		} else {
			servers++
		}
	}
	return controls, servers
}

// one requires one daemon with one server that clients can reach, and no other process.
func (m *machine) one(message ...any) {
	m.t.Helper()
	controls, servers := m.control()
	require.Equal(m.t, []int{1, 1}, []int{controls, servers}, message...)
	require.True(m.t, isMount(m.dir().shm()), message...)
	c := m.tenant(1000)
	require.Contains(m.t, c.connected(), "multiprocessors 66,", message...)
	c.kill()
}

// stop stops the daemon as soon as no client is connected.
func (m *machine) stop(s *Service) {
	m.t.Helper()
	m.eventually(func() bool { return s.Stop(m.t.Context(), daemonID) == nil })
	m.gone()
}

// stateWritten is the number of the effect after which the list contains the daemon: two directories are created before it.
const stateWritten = 3

// shards runs a test of fault points on several nodes in parallel: each node tests every step-th fault point, starting with first.
func shards(t *testing.T, test func(t *testing.T, m *machine, first, step int)) {
	t.Helper()
	t.Parallel()
	const step = 3
	for first := 1; first <= step; first++ {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			test(t, newMachine(t, newDriver), first, step)
		})
	}
}

func TestPut_KilledAtEveryFaultPoint_NextServiceCompletes(t *testing.T) {
	shards(t, func(t *testing.T, m *machine, first, step int) {
		for _, undone := range []bool{false, true} {
			at := first
			for ; m.killedAt("put", at); at += step {
				s := m.service()
				if listed, _ := s.List(t.Context(), 0); at > stateWritten {
					require.Len(t, listed, 1)
					assert.Equal(t, m.spec(), listed[0].Spec, "fault point %d", at)
					assert.Equal(t, 1, listed[0].Starts)
				}
				if !undone {
					assert.Len(t, m.ensure(s).Servers, 1)
					m.one("fault point ", at)
				}
				m.stop(s)
			}
			t.Logf("fault points: each %d from %d before %d", step, first, at)
			assert.Greater(t, at, 25)
			m.stop(m.service())
		}
	})
}

func TestDelete_KilledAtEveryFaultPoint_NextServiceCompletes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	points := 0
	for at := 1; ; at++ {
		s := m.service()
		m.ensure(s)
		killed := m.killedAt("delete", at)
		next := m.service()
		if killed && at%2 == 0 {
			m.ensure(next)
			m.one("fault point ", at)
		}
		m.stop(next)
		if !killed {
			break
		}
		points++
	}
	t.Log("fault points:", points)
	assert.Greater(t, points, 4)
}

// A service is killed while it adopts or finds the daemon, changes limits, or refuses to stop it; the client of the daemon keeps running.
func TestRunningDaemon_ServiceKilledAtEveryFaultPoint_ClientStays(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newDriver)
	daemon := m.ensure(m.service())
	c := m.tenant(1000)
	c.connected()
	points := 0
	for _, operation := range []string{"put", "restore", "delete"} {
		at := 1
		for m.killedAt(operation, at) {
			at++
			points++
		}
		assert.Equal(t, "allocated", c.more(), operation)
		assert.Equal(t, daemon.PID, m.ensure(m.service()).PID)
	}
	t.Log("fault points:", points)
	c.kill()
	m.stop(m.service())
}

// A daemon dies; its client continues after the restart.
func TestPut_DeadDaemon_KilledAtEveryFaultPoint(t *testing.T) {
	shards(t, func(t *testing.T, m *machine, first, step int) {
		m.ensure(m.service())
		for at := first; ; at += step {
			for _, p := range m.processes() {
				require.NoError(t, Linux{}.Kill(p))
				m.await(p)
			}
			killed := m.killedAt("put", at)
			m.ensure(m.service())
			m.one("fault point ", at)
			if !killed {
				break
			}
		}
		m.stop(m.service())
	})
}
