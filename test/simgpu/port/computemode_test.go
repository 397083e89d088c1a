package port

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

func TestComputeMode_SetAndRead_OneCallEach(t *testing.T) {
	t.Parallel()
	m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
	session := m.partitioner.(*Session)
	for _, mode := range []gpu.ComputeMode{gpu.ComputeExclusiveProcess, gpu.ComputeProhibited, gpu.ComputeDefault} {
		before := m.node.Calls.Of(os.Getpid()).Total
		require.NoError(t, session.SetComputeMode(t.Context(), string(m.id), mode))
		read, err := session.ComputeMode(t.Context(), string(m.id))
		require.NoError(t, err)
		assert.Equal(t, mode, read)
		assert.Equal(t, before+2, m.node.Calls.Of(os.Getpid()).Total)
	}
	require.Error(t, session.SetComputeMode(t.Context(), string(m.id), gpu.ComputeExclusiveThread))
	_, err := session.ComputeMode(t.Context(), "GPU-1")
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

func TestComputeMode_MIGDevice_Unsupported(t *testing.T) {
	t.Parallel()
	m := inMIGMode(t, "h100-80")
	session := m.partitioner.(*Session)
	gi, err := session.CreateInstance(t.Context(), m.id, 19, gpu.Placement{Size: 1})
	require.NoError(t, err)
	made, err := session.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	var unsupported *gpu.UnsupportedError
	_, err = session.ComputeMode(t.Context(), string(made.UUID))
	require.ErrorAs(t, err, &unsupported)
	require.ErrorAs(t, session.SetComputeMode(t.Context(), string(made.UUID), gpu.ComputeDefault), &unsupported)
}
