package sandbox_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// fault makes the program read an illegal address.
func (c *client) fault() string {
	_, err := fmt.Fprint(c.in, "f")
	require.NoError(c.t, err)
	return c.line()
}

func (m *mps) status(server int) string {
	m.t.Helper()
	return m.ask(fmt.Sprintf("get_server_status %d", server))
}

// A fatal fault of one client affects all; the server refuses new clients until these have exited, and stays.
func TestMPS_FatalFault_ServerFaultUntilClientsExit(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	m.start()
	server := m.startServer(0)
	a, b := m.client(0, 100), m.client(0, 100)
	a.holds()
	b.holds()
	assert.Equal(t, "simgpu_illegal_address: 700", a.fault())
	assert.Equal(t, "cuMemAlloc_v2: 700", b.more(), "the fault is reported to all clients")
	assert.Equal(t, "cuMemAlloc_v2: 700", a.more())
	assert.Equal(t, "cuInit: 807", m.client(0, 1).line())
	m.eventually(func() bool { return m.status(server) == "FAULT\n" })

	a.kill()
	m.eventually(func() bool { return m.node.Model.GPUs()[0].Clients == 2 })
	assert.Equal(t, "cuInit: 807", m.client(0, 1).line(), "one client with the fault has not exited")
	assert.Equal(t, "FAULT\n", m.status(server))
	b.kill()
	m.eventually(func() bool { return m.status(server) == "ACTIVE\n" })
	again := m.client(0, 100)
	again.holds()
	assert.Equal(t, "allocated", again.more())
	assert.Equal(t, []int{server}, m.servers(), "the same server")
}

// A server reports its state also while the control daemon waits for its answer.
func TestMPS_FatalFaultDuringCommand_BothArrive(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	m.start()
	server := m.startServer(0)
	c := m.client(0, 100)
	c.holds()
	require.NoError(t, syscall.Kill(server, syscall.SIGSTOP))
	assert.Equal(t, "simgpu_illegal_address: 700", c.fault())
	list := make(chan string, 1)
	go func() {
		text, _ := m.askAt(m.pipe, 0, fmt.Sprintf("get_client_list %d", server))
		list <- text
	}()
	m.eventually(func() bool { return strings.Contains(m.log(), "Cmd:get_client_list") })
	require.NoError(t, syscall.Kill(server, syscall.SIGCONT))
	assert.Equal(t, fmt.Sprintf("%d\n", c.command.Process.Pid), await(t, list))
	assert.Equal(t, "FAULT\n", m.status(server))
}

// A client on another GPU of the server goes on; but the server accepts no new client on any GPU. A server of another daemon does.
func TestMPS_FatalFault_OtherGPUsGoOn(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 3))
	m := newMPS(t, node)
	uuids := node.Model.Identities()
	m.env = append(m.env, "CUDA_VISIBLE_DEVICES=0,1")
	m.start()
	faulty, other := m.client(0, 100), m.client(0, 100, "CUDA_VISIBLE_DEVICES="+uuids[1].UUID)
	faulty.holds()
	other.holds()
	separate := newMPS(t, node)
	separate.env = append(separate.env, "CUDA_VISIBLE_DEVICES="+uuids[2].UUID)
	separate.start()
	separate.client(0, 100).holds()

	assert.Equal(t, "simgpu_illegal_address: 700", faulty.fault())
	assert.Equal(t, "allocated", other.more())
	assert.Equal(t, "cuInit: 807", m.client(0, 1, "CUDA_VISIBLE_DEVICES="+uuids[1].UUID).line())
	separate.client(0, 100).holds()
	faulty.kill()
	m.eventually(func() bool { return m.status(m.servers()[0]) == "ACTIVE\n" })
	m.client(0, 100).holds()
	assert.Equal(t, "allocated", other.more())
}

func TestCUDA_FatalFaultWithoutMPS_OneProcess(t *testing.T) {
	m := newMPS(t, sandbox.Start(t, model.Uniform("node-a", "h100-80", 1)))
	a, b := m.client(0, 100), m.client(0, 100)
	a.holds()
	b.holds()
	assert.Equal(t, "simgpu_illegal_address: 700", a.fault())
	assert.Equal(t, "cuMemAlloc_v2: 700", a.more())
	assert.Equal(t, "allocated", b.more())
}

// Without nvidia-persistenced and persistence mode, a mode that nvidia-smi sets is lost at once; a running process keeps it.
func TestComputeMode_WithoutPersistence_LostWithLastProcess(t *testing.T) {
	node := sandbox.Start(t, model.Uniform("node-a", "h100-80", 1))
	m := newMPS(t, node)
	require.NoError(t, node.Model.SetPersistenced(0, false))
	mode := func() model.ComputeMode { return node.Model.GPUs()[0].ComputeMode }
	setMode(t, node, "EXCLUSIVE_PROCESS")
	m.eventually(func() bool { return mode() == model.ComputeDefault })

	held := m.client(0, 100)
	held.holds()
	setMode(t, node, "EXCLUSIVE_PROCESS")
	assert.Equal(t, "cuCtxCreate_v2: 46", m.client(0, 1).line())
	held.kill()
	m.eventually(func() bool { return mode() == model.ComputeDefault })
}
