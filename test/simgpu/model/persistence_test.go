package model_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

// withoutPersistenced returns a node with two GPUs; only its clients keep the first initialised.
func withoutPersistenced(t *testing.T) *model.Node {
	t.Helper()
	node, err := model.New(model.Uniform("node-a", "h100-80", 2))
	require.NoError(t, err)
	require.NoError(t, node.SetPersistenced(0, false))
	return node
}

func computeMode(node *model.Node) model.ComputeMode { return node.GPUs()[0].ComputeMode }

func TestComputeMode_LastClientGone_KeptOnlyWithPersistence(t *testing.T) {
	for name, test := range map[string]struct {
		persistence func(*testing.T, *model.Node, *model.Session, model.Handle)
		want        model.ComputeMode
	}{
		"nvidia-persistenced": {func(t *testing.T, node *model.Node, _ *model.Session, _ model.Handle) {
			require.NoError(t, node.SetPersistenced(0, true))
		}, model.ComputeExclusiveProcess},
		"persistence mode": {func(t *testing.T, _ *model.Node, s *model.Session, h model.Handle) {
			require.NoError(t, s.SetPersistence(h, true, true))
		}, model.ComputeExclusiveProcess},
		"neither": {func(*testing.T, *model.Node, *model.Session, model.Handle) {}, model.ComputeDefault},
	} {
		node := withoutPersistenced(t)
		s, h := process(t, node)
		test.persistence(t, node, s, h)
		require.NoError(t, s.SetComputeMode(h, model.ComputeExclusiveProcess, true))
		s.Close()
		assert.Equal(t, test.want, computeMode(node), name)

		require.NoError(t, node.SetPersistenced(0, false))
		assert.Equal(t, model.ComputeDefault, computeMode(node), "%s ended without clients", name)
		assert.False(t, node.GPUs()[0].Persistence)
	}
	assert.Equal(t, model.InvalidArgument, withoutPersistenced(t).SetPersistenced(2, true))
}

// Each client alone keeps the mode; it is lost with the last client.
func TestComputeMode_ClientsWithoutPersistence_KeepMode(t *testing.T) {
	node := withoutPersistenced(t)
	admin, h := process(t, node)
	require.NoError(t, admin.SetComputeMode(h, model.ComputeExclusiveProcess, true))
	cuda, _ := process(t, node)
	_, err := cuda.CreateContext(h, model.ContextSpec{PID: 1})
	require.NoError(t, err)
	admin.Close()
	assert.Equal(t, model.ComputeExclusiveProcess, computeMode(node), "a process with a context")
	reader, _ := process(t, node)
	cuda.Close()
	assert.Equal(t, model.ComputeExclusiveProcess, computeMode(node), "a session with a handle")
	release, err := node.Hold(node.Identities()[0].UUID)
	require.NoError(t, err)
	reader.Close()
	assert.Equal(t, model.ComputeExclusiveProcess, computeMode(node), "a process that holds the GPU")
	release()
	assert.Equal(t, model.ComputeDefault, computeMode(node))
}

// NVML initialises a GPU when a session gets its handle, not before.
func TestComputeMode_SessionsWithoutHandle_DoNotKeepMode(t *testing.T) {
	node := withoutPersistenced(t)
	admin, h := process(t, node)
	require.NoError(t, admin.SetComputeMode(h, model.ComputeProhibited, true))
	idle, err := node.Open("", []int{0, 1})
	require.NoError(t, err)
	other, err := node.Open("", []int{0, 1})
	require.NoError(t, err)
	_, err = other.ByUUID(node.Identities()[1].UUID)
	require.NoError(t, err)
	admin.Close()
	assert.Equal(t, model.ComputeDefault, computeMode(node))
	idle.Close()
	other.Close()
}

func TestComputeMode_SessionOfEarlierDriver_DoesNotKeepMode(t *testing.T) {
	node := withoutPersistenced(t)
	earlier, _ := process(t, node)
	process(t, node) // stays open
	node.Unload()
	require.NoError(t, node.Load(model.DefaultDriver))
	s, h := process(t, node)
	require.NoError(t, s.SetComputeMode(h, model.ComputeProhibited, true))
	earlier.Close()
	assert.Equal(t, model.ComputeProhibited, computeMode(node))
	s.Close()
	assert.Equal(t, model.ComputeDefault, computeMode(node))
}
