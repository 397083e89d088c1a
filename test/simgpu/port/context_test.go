package port

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// The product's session makes no calls to the library when the context is done.
func TestSession_ContextDone_Refused(t *testing.T) {
	t.Parallel()
	m := inMIGMode(t, "h100-80")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	session := m.partitioner.(*Session)
	before := m.node.Calls.Of(os.Getpid()).Total
	for name, call := range map[string]func() error{
		"Driver":                func() error { _, err := session.Driver(ctx); return err },
		"GPUs":                  func() error { _, _, err := session.GPUs(ctx); return err },
		"CommonEdits":           func() error { _, err := session.CommonEdits(ctx); return err },
		"MIGMode":               func() error { _, err := m.MIGMode(ctx, m.id); return err },
		"SetMIGMode":            func() error { return m.SetMIGMode(ctx, m.id, false) },
		"Instances":             func() error { _, err := m.Instances(ctx, m.id); return err },
		"Occupied":              func() error { _, err := m.Occupied(ctx, m.id); return err },
		"Instance":              func() error { _, err := m.Instance(ctx, m.id, 1, ""); return err },
		"CreateInstance":        func() error { _, err := m.CreateInstance(ctx, m.id, 19, gpu.Placement{Size: 1}); return err },
		"CreateComputeInstance": func() error { _, err := m.CreateComputeInstance(ctx, m.id, 1); return err },
		"DestroyInstance":       func() error { return m.DestroyInstance(ctx, m.id, 1) },
		"DestroyCompute":        func() error { return m.DestroyComputeInstance(ctx, m.id, 1, 0) },
	} {
		require.ErrorIs(t, call(), context.Canceled, name)
	}
	assert.Equal(t, before, m.node.Calls.Of(os.Getpid()).Total)
	assert.Empty(t, m.instances())
	mode, err := m.MIGMode(t.Context(), m.id)
	require.NoError(t, err)
	assert.True(t, mode.Enabled)
}

// canceledAfter is a context that is canceled after a number of calls of Err.
type canceledAfter struct {
	context.Context

	after int
}

func (*canceledAfter) Done() <-chan struct{} { return nil }

func (e *canceledAfter) Err() error {
	if e.after--; e.after < 0 {
		return context.Canceled
	}
	return nil
}

// A canceled call does not report the remaining GPUs as faulty.
func TestGPUs_ContextDoneMeanwhile_NoFaults(t *testing.T) {
	t.Parallel()
	m := newMachine(t, model.Uniform("node-a", "h100-80", 3))
	for after := range 4 {
		gpus, faults, err := m.partitioner.(*Session).GPUs(&canceledAfter{Context: context.Background(), after: after})
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, gpus)
		assert.Empty(t, faults)
	}
}
