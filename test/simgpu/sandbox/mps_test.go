package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

const mpsDeadline = 5 * time.Minute

// mps is a pipe directory, and the environment of programs that use it.
type mps struct {
	t       *testing.T
	node    *sandbox.Node
	pipe    string
	control string // the program
	env     []string
}

func newMPS(t *testing.T, node *sandbox.Node) *mps {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	// Clients run as other users, which cannot search the cache of bundles.
	program, err := os.ReadFile(node.GPUMem())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gpu-mem"), program, 0o755))
	require.NoError(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(node.Root(), 0o755)))
	m := &mps{t: t, node: node, pipe: dir, control: filepath.Join(node.Programs(), "nvidia-cuda-mps-control")}
	m.env = []string{
		"PATH=" + node.Programs(), "LD_LIBRARY_PATH=" + node.LibraryDir(),
		"CUDA_MPS_PIPE_DIRECTORY=" + dir, "CUDA_MPS_LOG_DIRECTORY=" + dir,
	}
	return m
}

// start starts the control daemon in the foreground, and waits until it listens.
func (m *mps) start(args ...string) *exec.Cmd {
	m.t.Helper()
	// The cleanup asks the daemon for its servers, which outlive it.
	command := exec.CommandContext(context.WithoutCancel(m.t.Context()), m.control, append([]string{"-f"}, args...)...)
	command.Env = m.env
	log, err := os.Create(filepath.Join(m.pipe, "control.out"))
	require.NoError(m.t, err)
	defer log.Close()
	command.Stdout = log
	require.NoError(m.t, command.Start())
	m.t.Cleanup(func() {
		for _, pid := range m.servers() {
			assert.NoError(m.t, syscall.Kill(pid, syscall.SIGKILL))
		}
		_ = command.Process.Kill() // it may have exited
		_ = command.Wait()
	})
	m.eventually(func() bool { return strings.Contains(m.log(), "Starting control daemon") })
	return command
}

func (m *mps) eventually(condition func() bool) {
	m.t.Helper()
	require.Eventually(m.t, condition, mpsDeadline, 2*time.Millisecond)
}

// ask runs one command, as the user interface does.
func (m *mps) ask(command string) string {
	m.t.Helper()
	text, _ := m.askAt(m.pipe, 0, command)
	return text
}

func (m *mps) askAt(pipe string, uid uint32, line string) (string, int) {
	m.t.Helper()
	command := exec.CommandContext(context.WithoutCancel(m.t.Context()), m.control) // cleanups call it too
	command.Env = append(m.env, "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	command.Stdin = strings.NewReader(line + "\n")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	output, err := command.Output()
	if command.ProcessState == nil {
		require.NoError(m.t, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// run runs the program with arguments, and with an empty stdin.
func (m *mps) run(args ...string) (string, int) {
	m.t.Helper()
	command := exec.CommandContext(m.t.Context(), m.control, args...)
	command.Env = m.env
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		require.NoError(m.t, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// log returns the log of the control daemon.
func (m *mps) log() string {
	text, err := os.ReadFile(filepath.Join(m.pipe, "control.out"))
	if err != nil {
		return ""
	}
	return string(text)
}

func (m *mps) servers() []int {
	var list []int
	for _, line := range strings.Fields(m.ask("get_server_list")) {
		if pid, err := strconv.Atoi(line); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// startServer starts the server of a user and waits until it owns the GPU.
func (m *mps) startServer(uid int) int {
	m.t.Helper()
	m.ask(fmt.Sprintf("start_server -uid %d", uid))
	m.eventually(func() bool {
		return len(m.servers()) == 1 && m.ask(fmt.Sprintf("get_server_status %d", m.servers()[0])) == "ACTIVE\n"
	})
	return m.servers()[0]
}

// client is a running gpu-mem.
type client struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// client starts a program that allocates memory.
func (m *mps) client(uid uint32, mebibytes int, env ...string) *client {
	m.t.Helper()
	return m.startClient(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, mebibytes, env...)
}

func (m *mps) startClient(attributes *syscall.SysProcAttr, mebibytes int, env ...string) *client {
	m.t.Helper()
	command := exec.CommandContext(m.t.Context(), filepath.Join(m.pipe, "gpu-mem"), strconv.Itoa(mebibytes))
	command.Env = append(m.env[:len(m.env):len(m.env)], env...)
	command.SysProcAttr = attributes
	in, err := command.StdinPipe()
	require.NoError(m.t, err)
	out, err := command.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, command.Start())
	c := &client{t: m.t, command: command, in: in, out: bufio.NewScanner(out)}
	m.t.Cleanup(c.kill)
	return c
}

func (c *client) line() string {
	if !c.out.Scan() {
		return "EOF"
	}
	return c.out.Text()
}

// holds waits until the memory is allocated, and returns the client's view of its device.
func (c *client) holds() string {
	c.t.Helper()
	seen := c.line()
	require.Contains(c.t, seen, "multiprocessors")
	require.Contains(c.t, c.line(), "holding")
	return seen
}

// more allocates one MiB more.
func (c *client) more() string {
	_, err := fmt.Fprint(c.in, "x")
	require.NoError(c.t, err)
	return c.line()
}

func (c *client) kill() {
	_ = c.command.Process.Kill() // it may have exited
	_ = c.command.Wait()
}

func exclusiveNode(t *testing.T, driver model.DriverVersion) *sandbox.Node {
	t.Helper()
	node := sandbox.Start(t, model.Spec{Name: "node-a", Driver: driver, Boards: []string{"h100-80"}})
	setMode(t, node, "EXCLUSIVE_PROCESS")
	return node
}

func setMode(t *testing.T, node *sandbox.Node, mode string) {
	t.Helper()
	_, code := smi(t, node, "-i", "0", "-c", mode)
	require.Zero(t, code)
}

func TestCUDA_WithoutMPS_ComputeModes(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 2))
	m := newMPS(t, node)
	first := m.client(0, 1000)
	assert.Equal(t, "multiprocessors 132, free 80496 MiB, total 81008 MiB", first.holds())
	m.client(0, 1000).holds()
	assert.Equal(t, 2, node.Model.GPUs()[0].Clients)

	setMode(t, node, "EXCLUSIVE_PROCESS")
	assert.Equal(t, "cuCtxCreate_v2: 46", m.client(0, 1).line())
	m.client(0, 1, "CUDA_VISIBLE_DEVICES=1").holds()
	m.client(0, 1, "CUDA_VISIBLE_DEVICES="+node.Model.Identities()[1].UUID).holds()
	assert.Equal(t, "cuInit: 100", m.client(0, 1, "CUDA_VISIBLE_DEVICES=2").line())
	setMode(t, node, "PROHIBITED")
	assert.Equal(t, "cuCtxCreate_v2: 46", m.client(0, 1).line())

	first.kill()
	m.eventually(func() bool { return node.Model.GPUs()[0].Clients == 1 })
}

func TestMPS_TwoClients_ShareExclusiveGPU(t *testing.T) {
	node := exclusiveNode(t, "")
	m := newMPS(t, node)
	m.start()
	m.ask("set_default_device_pinned_mem_limit 0 2G")
	m.ask("set_default_active_thread_percentage 50")
	server := m.startServer(0)
	a, b := m.client(0, 1000), m.client(0, 1536)
	assert.Equal(t, "multiprocessors 66, free 1536 MiB, total 81008 MiB", a.holds())
	b.holds()
	assert.Equal(t, "cuMemAlloc_v2: 2", b.more())
	assert.Equal(t, "allocated", a.more())
	assert.ElementsMatch(t, []string{strconv.Itoa(a.command.Process.Pid), strconv.Itoa(b.command.Process.Pid)},
		strings.Fields(m.ask(fmt.Sprintf("get_client_list %d", server))))

	outside := newMPS(t, node)
	assert.Equal(t, "cuCtxCreate_v2: 46", outside.client(0, 1).line(), "without a control daemon the client runs without MPS")

	assert.Equal(t, "0\n", m.ask(fmt.Sprintf("terminate_client %d %d", server, a.command.Process.Pid)))
	assert.Equal(t, "cuMemAlloc_v2: 810", a.more())
	require.NoError(t, syscall.Kill(server, syscall.SIGKILL))
	m.eventually(func() bool { return node.Model.GPUs()[0].Clients == 0 })
	assert.Equal(t, "cuMemAlloc_v2: 806", b.more())
}

func TestMPS_ClientEnvironment_LowersOrEscapes(t *testing.T) {
	node := exclusiveNode(t, "")
	m := newMPS(t, node)
	m.start()
	m.ask("set_default_device_pinned_mem_limit 0 4G")
	m.ask("set_default_active_thread_percentage 50")
	uuid := node.Model.Identities()[0].UUID
	const limits, share = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="
	for env, want := range map[string]string{
		"NONE=":               "multiprocessors 66, free 3584 MiB",
		limits + "0=2G":       "multiprocessors 66, free 1536 MiB",
		limits + uuid + "=1G": "multiprocessors 66, free 512 MiB",
		limits + "0=8G":       "multiprocessors 66, free 3584 MiB",
		limits + "0=1G,1=1G":  "multiprocessors 66, free 79984 MiB",
		share + "25":          "multiprocessors 32, free 3584 MiB",
		share + "90":          "multiprocessors 66, free 3584 MiB",
	} {
		c := m.client(0, 0, env)
		assert.Contains(t, c.holds(), want, env)
		c.kill()
		m.eventually(func() bool { return len(strings.Fields(m.ask(fmt.Sprintf("get_client_list %d", m.servers()[0])))) == 0 })
	}
}

// The libraries are found through a directory of links, which is not the driver's.
func TestCUDA_DirectoryOfLinks_FindsDriver(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	m := newMPS(t, node)
	links := filepath.Join(m.pipe, "lib")
	require.NoError(t, errors.Join(os.Mkdir(links, 0o755), os.Symlink(filepath.Join(node.LibraryDir(), "libcuda.so.1"), filepath.Join(links, "libcuda.so.1"))))
	m.env[1] = "LD_LIBRARY_PATH=" + links
	m.client(0, 100).holds()
}

func TestMPS_MIGDevice_OwnServer(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	for _, args := range [][]string{{"-i", "0", "-mig", "1"}, {"mig", "-cgi", "19,19", "-C"}} {
		output, code := smi(t, node, args...)
		require.Zero(t, code, output)
	}
	setMode(t, node, "EXCLUSIVE_PROCESS")
	devices := node.Model.GPUs()[0].MIGDevices
	m := newMPS(t, node)
	m.env = append(m.env, "CUDA_VISIBLE_DEVICES="+devices[0].UUID)
	m.start()
	m.client(0, 100).holds()
	assert.Contains(t, m.client(0, 100).holds(), "multiprocessors 16,")
	outside := newMPS(t, node)
	assert.Equal(t, "cuCtxCreate_v2: 46", outside.client(0, 1, "CUDA_VISIBLE_DEVICES="+devices[0].UUID).line())
	outside.client(0, 1, "CUDA_VISIBLE_DEVICES="+devices[1].UUID).holds()
	assert.Equal(t, 3, node.Model.GPUs()[0].MIGDevices[0].Clients, "the server and its two clients")
}

// NVML lists the server with its own context, and its clients.
func TestMPS_ProcessLists_ServerAndClients(t *testing.T) {
	node := exclusiveNode(t, "")
	m := newMPS(t, node)
	m.start()
	c := m.client(0, 1000)
	c.holds()
	child := start(t, node, "processes")
	var compute, served []int
	child.receive(&compute)
	child.receive(&served)
	child.end()
	assert.Equal(t, m.servers(), compute)
	assert.Equal(t, []int{c.command.Process.Pid, 1512}, served)
	assert.Len(t, node.Model.GPUs()[0].Processes, 2)
}

// listProcesses prints the processes of the first GPU, and the processes of MPS with their memory in MiB.
func listProcesses(c *child) error {
	if err := must("init", c.lib.Init()); err != nil {
		return err
	}
	device, ret := c.lib.DeviceGetHandleByIndex(0)
	if err := must("first GPU", ret); err != nil {
		return err
	}
	compute, ret := device.GetComputeRunningProcesses()
	if err := must("compute processes", ret); err != nil {
		return err
	}
	served, ret := device.GetMPSComputeRunningProcesses()
	if err := must("MPS processes", ret); err != nil {
		return err
	}
	var pids, clients []int
	for _, p := range compute {
		pids = append(pids, int(p.Pid))
	}
	for _, p := range served {
		clients = append(clients, int(p.Pid), int(p.UsedGpuMemory>>20))
	}
	return errors.Join(c.send(pids), c.send(clients))
}
