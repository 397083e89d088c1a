package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCapabilities_Instances_NumbersOfTheDriver(t *testing.T) {
	got := []uint32{
		GPUInstanceCapability(0, 0), ComputeInstanceCapability(0, 0, 7), GPUInstanceCapability(0, 1),
		GPUInstanceCapability(1, 0), ComputeInstanceCapability(MaxGPUs-1, MaxGPUInstances-1, MaxComputeInstances-1),
	}
	assert.Equal(t, []uint32{3, 11, 12, 138, 4322}, got, "as /proc/driver/nvidia-caps/mig-minors of a real driver lists them")
}

// A process without the node's capability sees the MIG devices of its device nodes, and cannot change any.
func TestSession_CapabilityNodes_DecideVisibleMIGDevices(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	ci, uuid := m.device(m.must("3g.40gb", 0))
	_, otherUUID := m.device(m.must("1g.10gb", 6))
	instance, err := m.ComputeInstance(ci)
	require.NoError(t, err)
	gi, err := m.GPUInstance(instance.Instance)
	require.NoError(t, err)
	hidden, err := m.ByUUID(otherUUID)
	require.NoError(t, err)

	tenant, err := m.node.OpenWith("", DeviceNodes{
		Minors: []int{0}, Capabilities: []uint32{GPUInstanceCapability(0, gi.ID), ComputeInstanceCapability(0, gi.ID, instance.ID)},
	})
	require.NoError(t, err)
	shown, err := tenant.MIGDeviceByIndex(m.gpu, 0)
	require.NoError(t, err)
	device, err := tenant.MIGDevice(shown)
	require.NoError(t, err)
	assert.Equal(t, uuid, device.UUID)
	_, err = tenant.MIGDeviceByIndex(m.gpu, 1)
	assert.Equal(t, NotFound, err)
	_, err = tenant.ByUUID(uuid)
	assert.NoError(t, err)
	_, err = tenant.ByUUID(otherUUID)
	assert.Equal(t, NotFound, err)
	_, err = tenant.MIGDevice(hidden)
	assert.Equal(t, InvalidArgument, err)

	for what, try := range map[string]func() error{
		"create":           func() error { _, err := tenant.CreateGPUInstance(t.Context(), m.gpu, 19, nil, asRoot); return err },
		"create inside":    func() error { _, err := tenant.CreateComputeInstance(t.Context(), gi.Parent, 0, asRoot); return err },
		"destroy":          func() error { return tenant.DestroyComputeInstance(t.Context(), ci, asRoot) },
		"destroy instance": func() error { return tenant.DestroyGPUInstance(t.Context(), instance.Instance, asRoot) },
		"mode":             func() error { _, err := tenant.SetMIGMode(t.Context(), m.gpu, false, asRoot); return err },
		"list":             func() error { _, err := tenant.GPUInstances(m.gpu, 19, asRoot); return err },
		"find":             func() error { _, err := tenant.GPUInstanceByID(m.gpu, gi.ID, asRoot); return err },
	} {
		assert.Equal(t, NoPermission, try(), what)
	}

	monitor, err := m.node.OpenWith("", DeviceNodes{Minors: []int{0}, Capabilities: []uint32{MonitorCapability}})
	require.NoError(t, err)
	_, err = monitor.MIGDeviceByIndex(m.gpu, 1)
	assert.NoError(t, err)
	_, err = monitor.GPUInstances(m.gpu, 19, asRoot)
	assert.Equal(t, NoPermission, err)
}
