package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

const serverKey = 7

// mpsClient is a process with contexts on GPUs of a node, as a client of the MPS server.
type mpsClient struct {
	*model.Session
	pid     int
	handles []model.Handle
	ids     []uint64
}

// mpsServer opens the server, with a context on each GPU.
func mpsServer(t *testing.T, node *model.Node) *model.Session {
	t.Helper()
	s, err := node.Open("", []int{0, 1, 2})
	require.NoError(t, err)
	for i := range node.GPUs() {
		h, err := s.ByIndex(i)
		require.NoError(t, err)
		_, err = s.CreateContext(h, model.ContextSpec{PID: 1, Role: model.MPSServerContext, Server: serverKey})
		require.NoError(t, err)
	}
	return s
}

func client(t *testing.T, node *model.Node, pid int, gpus ...int) *mpsClient {
	t.Helper()
	s, err := node.Open("", []int{0, 1, 2})
	require.NoError(t, err)
	c := &mpsClient{Session: s, pid: pid}
	for _, i := range gpus {
		require.NoError(t, c.createContext(t, i))
	}
	return c
}

func (c *mpsClient) createContext(t *testing.T, index int) error {
	t.Helper()
	h, err := c.ByIndex(index)
	require.NoError(t, err)
	id, err := c.CreateContext(h, model.ContextSpec{PID: c.pid, Role: model.MPSClientContext, Server: serverKey})
	if err == nil {
		c.handles, c.ids = append(c.handles, h), append(c.ids, id)
	}
	return err
}

// call allocates in each context, and returns the errors.
func (c *mpsClient) call() []error {
	var list []error
	for i, h := range c.handles {
		_, err := c.Allocate(h, c.ids[i], 1)
		list = append(list, err)
	}
	return list
}

func faultedGPUs(t *testing.T, server *model.Session) []bool {
	t.Helper()
	var list []bool
	for i := range 3 {
		h, err := server.ByIndex(i)
		require.NoError(t, err)
		faulted, err := server.ServerFaulted(h, serverKey)
		require.NoError(t, err)
		list = append(list, faulted)
	}
	return list
}

// The example of NVIDIA's documentation: A on GPU 0, B on 0 and 1, C on 1, D on 2. A fault of A affects A, B and C.
func TestFault_MPSClient_ReachesDevicesOfSharedClients(t *testing.T) {
	node, err := model.New(model.Uniform("node-a", "h100-80", 3))
	require.NoError(t, err)
	server := mpsServer(t, node)
	a, b, c, d := client(t, node, 2, 0), client(t, node, 3, 0, 1), client(t, node, 4, 1), client(t, node, 5, 2)
	connected := client(t, node, 6)

	require.Equal(t, model.IllegalAddress, a.Fault(a.handles[0], a.ids[0]))
	assert.Equal(t, []error{model.IllegalAddress}, a.call())
	assert.Equal(t, []error{model.IllegalAddress, model.IllegalAddress}, b.call())
	assert.Equal(t, []error{model.IllegalAddress}, c.call())
	assert.Equal(t, []error{nil}, d.call())
	assert.Equal(t, []bool{true, true, false}, faultedGPUs(t, server))
	assert.Equal(t, model.ServerNotReady, connected.createContext(t, 1))
	require.NoError(t, connected.createContext(t, 2))

	a.Close()
	require.Equal(t, model.IllegalAddress, b.DestroyContext(b.handles[1], b.ids[1]), "the process has to exit")
	assert.Equal(t, []bool{true, true, false}, faultedGPUs(t, server), "two clients have not exited")
	b.Close()
	assert.Equal(t, []bool{false, true, false}, faultedGPUs(t, server))
	require.NoError(t, connected.createContext(t, 0))
	c.Close()
	assert.Equal(t, []bool{false, false, false}, faultedGPUs(t, server))
	assert.NoError(t, connected.createContext(t, 1))
	assert.Equal(t, []error{nil, nil, nil}, connected.call())
}

// Without MPS a fault affects its context alone.
func TestFault_WithoutMPS_OneContext(t *testing.T) {
	node := oneGPU(t, model.ComputeDefault)
	first, h := process(t, node)
	second, _ := process(t, node)
	a, err := first.CreateContext(h, model.ContextSpec{PID: 1})
	require.NoError(t, err)
	b, err := second.CreateContext(h, model.ContextSpec{PID: 2})
	require.NoError(t, err)
	require.Equal(t, model.IllegalAddress, first.Fault(h, a))
	_, err = first.Allocate(h, a, 1)
	assert.Equal(t, model.IllegalAddress, err)
	_, err = second.Allocate(h, b, 1)
	require.NoError(t, err)
	use, err := second.Memory(h)
	require.NoError(t, err)
	assert.Equal(t, uint64(2*model.ContextMemory+1), use.Used, "the memory is freed when the process exits")
	first.Close()
	use, err = second.Memory(h)
	require.NoError(t, err)
	assert.Equal(t, uint64(model.ContextMemory+1), use.Used)
}

// A client keeps its fault when the server exits or is asked to end the client.
func TestFault_ServerExits_FaultStays(t *testing.T) {
	node, err := model.New(model.Uniform("node-a", "h100-80", 3))
	require.NoError(t, err)
	server := mpsServer(t, node)
	a, b := client(t, node, 2, 0), client(t, node, 3, 1)
	require.Equal(t, model.IllegalAddress, a.Fault(a.handles[0], a.ids[0]))
	require.NoError(t, server.EndClients(a.handles[0], serverKey, 2))
	assert.Equal(t, []bool{true, false, false}, faultedGPUs(t, server))
	server.Close()
	assert.Equal(t, []error{model.IllegalAddress}, a.call())
	assert.Equal(t, []error{model.InvalidState}, b.call())
	assert.Zero(t, node.GPUs()[0].Clients)
}
