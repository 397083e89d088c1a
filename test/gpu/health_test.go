package gpu_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// eventTypes names the types of events that the plugin registers.
var eventTypes = []struct {
	name string
	bit  uint64
}{
	{"XID", nvml.EventTypeXidCriticalError},
	{"double-bit ECC", nvml.EventTypeDoubleBitEccError},
	{"GPU unavailable", nvml.EventTypeGpuUnavailableError},
	{"recovery action", nvml.EventTypeGpuRecoveryAction},
}

// TestHealth_RealGPUs_NoFinding: a poll of healthy GPUs reports nothing that would taint them. The log shows whether the driver answers field
// 230, the recovery action. The test only reads.
func TestHealth_RealGPUs_NoFinding(t *testing.T) {
	session, _, _ := open(t)
	gpus, faults, err := session.GPUs(t.Context())
	require.NoError(t, err)
	assert.Empty(t, faults)
	for i := range gpus {
		g := &gpus[i]
		require.NoError(t, session.Alive(t.Context(), g.UUID))
		r := session.Health(t.Context(), g)
		require.NoError(t, r.Err)
		t.Logf("GPU %d (%s): field 230 is answered: %t, fabric %q", g.Index, g.Product.Name, r.Action != nil, r.Fabric)
		if r.Action != nil {
			assert.Equal(t, gpu.RecoveryNone, *r.Action)
		}
		assert.False(t, r.RowRemapPending || r.RowRemapFailure || r.RetirementPending, "%+v", r)
		assert.NotEqual(t, gpu.FabricNotReady, r.Fabric)
	}
}

// TestHealth_RealGPUs_SupportedEvents logs the types of events that each GPU supports, and registers them in a set that is freed again. The
// driver must accept the types that it says it supports.
func TestHealth_RealGPUs_SupportedEvents(t *testing.T) {
	library, _ := driverFiles(t)
	lib := nvml.New(nvml.WithLibraryPath(library))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()
	set, ret := lib.EventSetCreate()
	require.Equal(t, nvml.SUCCESS, ret)
	defer func() { assert.Equal(t, nvml.SUCCESS, set.Free()) }()
	count, ret := lib.DeviceGetCount()
	require.Equal(t, nvml.SUCCESS, ret)
	registered := false
	for index := range count {
		device, ret := lib.DeviceGetHandleByIndex(index)
		require.Equal(t, nvml.SUCCESS, ret)
		supported, ret := device.GetSupportedEventTypes()
		t.Logf("GPU %d: supported events %#x (code %v)", index, supported, ret)
		if ret != nvml.SUCCESS {
			continue
		}
		wanted := uint64(0)
		for _, e := range eventTypes {
			t.Logf("GPU %d: %s: %t", index, e.name, supported&e.bit != 0)
			wanted |= supported & e.bit
		}
		if wanted != 0 {
			assert.Equal(t, nvml.SUCCESS, device.RegisterEvents(wanted, set))
			registered = true
		}
	}
	if registered {
		_, ret = set.Wait(1)
		assert.Equal(t, nvml.ERROR_TIMEOUT, ret, "an idle GPU has no event")
	}
}
