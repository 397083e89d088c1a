package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// await returns the next value of a channel, before the deadline.
func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(mpsDeadline):
		require.Fail(t, "nothing came in time")
		panic("unreachable")
	}
}

// A client of another user waits until the clients of the current server's user have exited.
func TestMPS_SecondUser_WaitsForTheFirst(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, "550.54.15"))
	m.start()
	first := m.client(1000, 100)
	first.holds()
	server := m.servers()[0]
	second := m.client(1001, 100)
	got := make(chan string, 1)
	go func() { got <- second.line() }()
	m.eventually(func() bool { return strings.Contains(m.log(), "from user 1001: Server is not ready") })
	assert.Equal(t, []int{server}, m.servers())
	select {
	case line := <-got:
		t.Fatalf("the second user's client did not wait: %s", line)
	default:
	}
	first.kill()
	assert.Contains(t, await(t, got), "multiprocessors")
	assert.NotEqual(t, []int{server}, m.servers())
}

func TestMPS_MultiUserServer_ServesAll(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	m.start("-multiuser-server")
	m.client(1000, 100).holds()
	m.client(1001, 100).holds()
	assert.Len(t, m.servers(), 1)
}

// Driver 550 does not know this option: the program takes it for a command of the user interface.
func TestMPS_MultiUserServer_NotInOldDrivers(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, "550.54.15"))
	text, code := m.run("-f", "-multiuser-server")
	assert.Equal(t, "Cannot find MPS control daemon process\n", text)
	assert.Equal(t, 1, code)
}

func TestMPS_ControlKilled_ServerKeepsGPU(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	control := m.start()
	served := m.client(0, 100)
	served.holds()
	server := m.servers()[0]
	t.Cleanup(func() { assert.NoError(t, syscall.Kill(server, syscall.SIGKILL)) })
	require.NoError(t, control.Process.Kill())
	require.Error(t, control.Wait(), "it was killed")
	assert.Equal(t, "allocated", served.more())
	assert.Equal(t, "cuCtxCreate_v2: 46", m.client(0, 1).line(), "nothing listens on the socket: without MPS, beside the server")

	m.start()
	assert.Equal(t, "cuInit: 805", m.client(0, 1).line(), "the server of the new daemon does not get the GPU")
}

func TestMPS_ServerNotInPATH_ClientsFail(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	m.env[0] = "PATH=/nonexistent"
	m.start()
	assert.Empty(t, m.ask("start_server -uid 0"), "the failure is silent")
	assert.Equal(t, "cuInit: 805", m.client(0, 1).line())
	assert.Contains(t, m.log(), "exited with status 1")
}

func TestMPS_Clients_AtMost48Or60(t *testing.T) {
	for driver, limit := range map[model.DriverVersion]int{"580.95.05": 48, "590.44.01": 60} {
		m := newMPS(t, exclusiveNode(t, driver))
		m.start()
		m.startServer(0)
		for range limit {
			c := m.client(0, 0)
			c.holds()
		}
		assert.Equal(t, "cuInit: 808", m.client(0, 0).line(), driver)
	}
}

func TestMPS_Quit_WaitsForClients(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	control := m.start()
	held := m.client(0, 100)
	held.holds()
	done := make(chan int, 1)
	go func() {
		_, code := m.askAt(m.pipe, 0, "quit")
		done <- code
	}()
	m.eventually(func() bool { return strings.Contains(m.log(), "Cmd:quit") })
	assert.Equal(t, "allocated", held.more())
	assert.Equal(t, "cuInit: 805", m.client(0, 1).line())
	held.kill()
	assert.Zero(t, await(t, done))
	assert.NoError(t, control.Wait())
	m.eventually(func() bool { return m.node.Model.GPUs()[0].Clients == 0 })
}

// The timeout stops a server with clients, but not one that hangs.
func TestMPS_QuitWithTimeout_ForcesServerThatAnswers(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	control := m.start()
	held := m.client(0, 100)
	held.holds()
	_, code := m.askAt(m.pipe, 0, "quit -t 0")
	assert.Zero(t, code)
	assert.NoError(t, control.Wait())
	m.eventually(func() bool { return m.node.Model.GPUs()[0].Clients == 0 })
	assert.Equal(t, "cuMemAlloc_v2: 806", held.more())

	control = m.start()
	server := m.startServer(0)
	require.NoError(t, syscall.Kill(server, syscall.SIGSTOP))
	done := make(chan int, 1)
	go func() {
		_, code := m.askAt(m.pipe, 0, "quit -t 0")
		done <- code
	}()
	m.eventually(func() bool { return strings.Contains(m.log(), "timeout of 0") })
	select {
	case <-done:
		t.Fatal("the daemon quit, although its server is hung")
	default:
	}
	require.NoError(t, syscall.Kill(server, syscall.SIGKILL))
	assert.Equal(t, 1, await(t, done))
	assert.Error(t, control.Wait())
}

// Tenants have control without control_privileged.
func TestMPS_ControlOnly_Privileges(t *testing.T) {
	for driver, refused := range map[model.DriverVersion]bool{"535.183.01": false, "550.54.15": true, "580.95.05": true} {
		m := newMPS(t, exclusiveNode(t, driver))
		m.start()
		tenant := t.TempDir()
		for dir := tenant; dir != os.TempDir(); dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
		require.NoError(t, os.Link(filepath.Join(m.pipe, "control"), filepath.Join(tenant, "control")))
		for _, uid := range []uint32{0, 1000} {
			text, code := m.askAt(tenant, uid, "quit")
			assert.Equal(t, "Not enough privilege to execute quit command\n", text)
			assert.Zero(t, code)
			text, _ = m.askAt(tenant, uid, "set_default_active_thread_percentage 40")
			assert.Equal(t, refused, strings.HasPrefix(text, "Insufficient privileges for UID "), text)
		}
		m.ask("start_server -uid 0")
		m.eventually(func() bool { return len(m.servers()) == 1 })
		server := m.servers()[0]
		text, _ := m.askAt(tenant, 1000, fmt.Sprintf("shutdown_server %d -f", server))
		assert.Contains(t, text, "Insufficient privileges for UID 1000")
		text, _ = m.askAt(tenant, 0, fmt.Sprintf("set_active_thread_percentage %d 30", server))
		assert.Equal(t, "30.0\n", text)
	}
}

func TestMPS_GPULost_ServerFails(t *testing.T) {
	m := newMPS(t, exclusiveNode(t, ""))
	_, err := m.node.Model.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 0, Return: model.GPUIsLost})
	require.NoError(t, err)
	m.start()
	m.ask("start_server -uid 0")
	m.eventually(func() bool { return strings.Contains(m.log(), "exited with status 1") })
}
