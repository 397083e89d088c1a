package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMPSClients_CUDAVersions_AsDocumented(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{
		"": 48, "12.2": 48, "13": 48, "13.0": 48, "13.1": 60, "13.10": 60, "14.0": 60, "later": 48,
	} {
		assert.Equal(t, want, Driver{CUDAVersion: version}.MPSClients(), version)
	}
}

func TestSupportsMPS_ComputeCapabilities_FromSeven(t *testing.T) {
	t.Parallel()
	for capability, want := range map[string]bool{"3.5": false, "6.1": false, "7.0": true, "7.5": true, "10.0": true, "": true, "unknown": true} {
		assert.Equal(t, want, Product{ComputeCapability: capability}.SupportsMPS(), capability)
	}
}

// TestMPSShare_AnyModes_DeviceOfTheGPU: it takes the size and the name of the sharing, and none of the settings that apply without
// another device.
func TestMPSShare_AnyModes_DeviceOfTheGPU(t *testing.T) {
	t.Parallel()
	g := hopper()
	g.Capacity = Capacity{MemoryBytes: 80 << 30, Multiprocessors: 132}
	size := MPSSize{Replicas: 1, Memory: MPSMemory{Total: 79 << 30}}
	modes := Modes{MPS: &MPSSharing{MPSSize: size, ShareName: "gpu-2gb", ShmBytes: 1 << 30, Namespaces: []string{"a"}}}
	want := MPSShare{GPU: g, Size: size, ShareName: "gpu-2gb"}
	assert.Equal(t, []Device{want}, modes.Devices(g))
	assert.Equal(t, DeviceName("gpu-3f2a9c1b-mps"), want.Name())
	assert.Equal(t, "n0/gpu-3f2a9c1b", modes.Pool("n0", g))
	assert.Equal(t, Capacity{MemoryBytes: 79 << 30, Multiprocessors: 132}, want.Capacity())
	assert.True(t, want.Shares().Shared(), "one share is a share too")
	assert.False(t, exclusive.Shared())
	g.MIG.Mode.NeedsReset, g.MIG.Mode.Enabled = true, true
	assert.Empty(t, modes.Devices(g), "in MIG mode, which only a reset changes")
	assert.Equal(t, want.Size, modes.MPS.MPSSize)
}

// TestWithSettings_OtherModes_SizesStay, and no pointer is shared that the caller may write to.
func TestWithSettings_OtherModes_SizesStay(t *testing.T) {
	t.Parallel()
	now := Modes{Whole: true, MPS: &MPSSharing{MPSSize: MPSSize{Replicas: 2}, ShareName: "a", Resource: "x/a", ShmBytes: 1, Namespaces: []string{"a"}}}
	to := Modes{MPS: &MPSSharing{MPSSize: MPSSize{Replicas: 3}, ShareName: "b", Resource: "x/b", ShmBytes: 2, Namespaces: []string{"b"}}}
	want := Modes{Whole: true, MPS: &MPSSharing{MPSSize: MPSSize{Replicas: 2}, ShareName: "a", Resource: "x/a", ShmBytes: 2, Namespaces: []string{"b"}}}
	assert.Equal(t, want, now.WithSettings(to))
	assert.Equal(t, int64(1), now.MPS.ShmBytes)
	assert.Equal(t, now, now.WithSettings(Modes{Whole: true}))
	assert.Equal(t, Modes{}, Modes{}.WithSettings(to))
	assert.True(t, now.MPS.Allows("a"))
	assert.False(t, now.MPS.Allows("b"))
	assert.True(t, (&MPSSharing{}).Allows("b"))
}
