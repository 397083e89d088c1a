package model

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the caller is killed while the driver works, the instance stays.
func TestCreateGPUInstance_CallerGone_InstanceStays(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	m.node.SetMIGLatency(MIGLatency{CreateGPUInstance: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := m.CreateGPUInstance(ctx, m.gpu, 19, nil, asRoot)
		done <- err
	}()
	require.Eventually(t, func() bool { return len(m.node.Snapshot().GPUs[0].MIGDevices) == 1 }, time.Minute, time.Millisecond)
	waiting, give := context.WithCancel(t.Context())
	give()
	_, err := m.SetMIGMode(waiting, m.gpu, false, asRoot)
	require.ErrorIs(t, err, context.Canceled, "one change of a GPU at a time")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Len(t, m.node.Snapshot().GPUs[0].MIGDevices, 1)
	m.node.SetMIGLatency(MIGLatency{})
	m.must("1g.10gb", -1)
}

func TestWatch_Changes_Reported(t *testing.T) {
	m := newMIGGPU(t, "h100-80")
	changes := 0
	m.node.Watch(func() { changes++ })
	_, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	gi := m.must("1g.10gb", 0)
	_, err = m.create("1g.10gb", 0)
	require.Error(t, err)
	m.device(gi)
	assert.Equal(t, 3, changes)
	m.node.Unload()
	assert.Equal(t, 4, changes)
}
