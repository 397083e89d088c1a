package mpsd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const (
	// deadline limits every wait of a test.
	deadline = 5 * time.Minute
	// newDriver supports one server for all users, oldDriver does not.
	oldDriver, newDriver model.DriverVersion = "550.54.15", "580.95.05"
	daemonID             gpu.MPSDaemonID     = "a5172723"
	shmSize                                  = 1 << 20
)

// TestMain runs the tests in a mount namespace of their own: they mount file systems.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == LaunchCommand {
		fmt.Fprintln(os.Stderr, Launch(os.Args[2:]))
		os.Exit(1)
	}
	if os.Getenv(faultEnv) != "" {
		os.Exit(runUntilFault())
	}
	if dir := os.Getenv(initEnv); dir != "" {
		os.Exit(runInit(dir))
	}
	os.Exit(sandbox.OnGPUMachine(m))
}

// machine is a node with a simulated GPU and the dependencies of its services.
type machine struct {
	t       *testing.T
	node    *sandbox.Node
	options Options
	gpuMem  string
	// current is the service, nil if none runs; stopped ends its observation of exits.
	current *Service
	stopped func()
}

// longTimes returns limits that are long enough for a busy machine.
func longTimes() Times {
	times := defaultTimes
	times.Start, times.Ask, times.Quit, times.Kill = deadline, deadline, deadline, deadline
	return times
}

func newMachine(t *testing.T, driver model.DriverVersion) *machine {
	t.Helper()
	node := sandbox.Start(t, model.Spec{Name: "node-a", Driver: driver, Boards: []string{"h100-80"}})
	if !sandbox.IsGPUMachine() {
		t.Skip("mounting file systems needs a mount namespace of its own")
	}
	smi := exec.CommandContext(t.Context(), node.SMI(), "-i", "0", "-c", "EXCLUSIVE_PROCESS")
	smi.Env = []string{"LD_LIBRARY_PATH=" + node.LibraryDir()}
	require.NoError(t, smi.Run())
	run, err := os.MkdirTemp("", "mpsd-")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	// Clients run as other users, which cannot search the cache of bundles.
	program, err := os.ReadFile(node.GPUMem())
	require.NoError(t, err)
	m := &machine{t: t, node: node, gpuMem: filepath.Join(run, "gpu-mem"), options: Options{
		Dir: filepath.Join(run, "mps"), Host: hostfs.New(node.Root()), System: Linux{}, Program: self, Version: "test",
	}}
	m.options.Times = longTimes()
	require.NoError(t, errors.Join(os.WriteFile(m.gpuMem, program, 0o755), os.Chmod(run, 0o755), os.Chmod(node.Root(), 0o755)))
	t.Cleanup(func() {
		dir := m.dir()
		for _, p := range m.processes() {
			assert.NoError(t, Linux{}.Kill(p))
			m.await(p)
		}
		assert.NoError(t, errors.Join(Linux{}.Unmount(dir.injection()), Linux{}.Unmount(dir.shm())))
		assert.NoError(t, os.RemoveAll(run))
	})
	return m
}

func (m *machine) dir() directory { return directory(filepath.Join(m.options.Dir, string(daemonID))) }

// processes returns the processes of the control daemon.
func (m *machine) processes() []hostfs.Process {
	found, err := processes.ProcessesWith(m.dir().mark())
	require.NoError(m.t, err)
	return found
}

// await returns when the process has exited.
func (m *machine) await(p hostfs.Process) {
	m.t.Helper()
	done, err := exited(p)
	require.NoError(m.t, err)
	select {
	case <-done:
	case <-time.After(deadline):
		require.Fail(m.t, "a process did not exit")
	}
}

func (m *machine) eventually(condition func() bool) {
	m.t.Helper()
	require.Eventually(m.t, condition, deadline, 2*time.Millisecond)
}

// service replaces the service by a new one.
func (m *machine) service() *Service {
	m.t.Helper()
	m.end()
	var ctx context.Context
	ctx, m.stopped = context.WithCancel(m.t.Context())
	m.t.Cleanup(m.end)
	s, err := New(ctx, m.options)
	require.NoError(m.t, err)
	m.current = s
	return s
}

// end stops the service as if its process had ended: it makes no further changes. It completes an operation in progress, and everything
// after that waits for ever. Otherwise it might write the state of a daemon that has just exited while the next service runs.
func (m *machine) end() {
	m.t.Helper()
	s := m.current
	if s == nil {
		return
	}
	m.current = nil
	m.stopped()
	s.mu.Lock()
	ended := maps.Clone(s.daemons)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	for _, d := range ended {
		require.NoError(m.t, d.lock(ctx))
	}
}

// spec returns the spec for the first GPU.
func (m *machine) spec() gpu.MPSDaemonSpec {
	uuid := m.node.Model.Identities()[0].UUID
	return gpu.MPSDaemonSpec{GPU: gpu.UUID(uuid), Device: uuid, MemoryMiB: 2000, ActiveThreadPercentage: 50, ShmBytes: shmSize}
}

func (m *machine) ensure(s *Service) gpu.MPSDaemon {
	m.t.Helper()
	daemon, err := s.Ensure(m.t.Context(), daemonID, m.spec(), true)
	require.NoError(m.t, err)
	require.Equal(m.t, gpu.MPSRunning, daemon.State)
	return daemon
}

// gone requires that nothing of the daemon remains.
func (m *machine) gone() {
	m.t.Helper()
	assert.Empty(m.t, m.processes())
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(m.t, err)
	assert.NotContains(m.t, string(mounts), m.options.Dir)
	assert.NoDirExists(m.t, string(m.dir()))
}

// tenant is a client of MPS: gpu-mem in the environment of a container.
type tenant struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func (m *machine) tenant(uid uint32, env ...string) *tenant {
	m.t.Helper()
	command := exec.CommandContext(context.WithoutCancel(m.t.Context()), m.gpuMem, "100")
	command.Env = append(env, "LD_LIBRARY_PATH="+m.node.LibraryDir(), "CUDA_MPS_PIPE_DIRECTORY="+m.dir().client())
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := command.StdinPipe()
	require.NoError(m.t, err)
	out, err := command.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, command.Start())
	c := &tenant{t: m.t, command: command, in: in, out: bufio.NewScanner(out)}
	m.t.Cleanup(c.kill)
	return c
}

func (c *tenant) pid() int { return c.command.Process.Pid }

func (c *tenant) line() string {
	if !c.out.Scan() {
		return "EOF"
	}
	return c.out.Text()
}

// connected waits until the client has allocated its memory, and returns its view of the GPU.
func (c *tenant) connected() string {
	c.t.Helper()
	seen := c.line()
	require.Contains(c.t, seen, "multiprocessors")
	require.Equal(c.t, "holding 100 MiB", c.line())
	return seen
}

// more allocates one MiB more.
func (c *tenant) more() string {
	_, err := fmt.Fprint(c.in, "x")
	require.NoError(c.t, err)
	return c.line()
}

func (c *tenant) kill() {
	_ = c.command.Process.Kill() // it may have exited
	_ = c.command.Wait()
}

// counted counts the runs of programs.
type counted struct {
	System
	runs, starts int
}

func (c *counted) Run(ctx context.Context, command Command) (string, int, error) {
	c.runs++
	return c.System.Run(ctx, command)
}

func (c *counted) Start(command Command) (*Started, error) {
	c.starts++
	return c.System.Start(command)
}

// mode returns the permissions of a file, with the sticky bit.
func mode(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Lstat(path, &stat))
	return strconv.FormatUint(uint64(stat.Mode&0o7777), 8)
}

// mountOptions returns the options of the mount at a path, in the mount namespace of a process.
func mountOptions(t *testing.T, pid int, path string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
	require.NoError(t, err)
	options := ""
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); fields[1] == path {
			options = fields[2] + " " + fields[3]
		}
	}
	return options
}
