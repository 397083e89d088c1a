package sampling

import (
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// twoGPUs is a library with two GPUs. The second one is lost until found is set.
type twoGPUs struct {
	bare
	mu sync.Mutex
	// asked counts how often each of them was identified.
	asked [2]int
	found bool
}

func (l *twoGPUs) DeviceGetCount() (int, nvml.Return) { return 2, nvml.SUCCESS }

func (l *twoGPUs) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[index]++
	if index == 1 && !l.found {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return &identified{answering: newAnswering(), index: index}, nvml.SUCCESS
}

// identified is a GPU whose MIG mode changes with each call.
type identified struct {
	*answering
	index, modes int
}

func (i *identified) GetUUID() (string, nvml.Return) {
	return []string{"GPU-a", "GPU-b"}[i.index], nvml.SUCCESS
}
func (i *identified) GetPciInfo() (nvml.PciInfo, nvml.Return)           { return nvml.PciInfo{}, nvml.SUCCESS }
func (i *identified) GetMinorNumber() (int, nvml.Return)                { return i.index, nvml.SUCCESS }
func (i *identified) GetName() (string, nvml.Return)                    { return "GPU", nvml.SUCCESS }
func (i *identified) GetCudaComputeCapability() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS }
func (i *identified) GetBrand() (nvml.BrandType, nvml.Return)           { return nvml.BRAND_NVIDIA, nvml.SUCCESS }
func (i *identified) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return nvml.DEVICE_ARCH_HOPPER, nvml.SUCCESS
}
func (i *identified) GetSerial() (string, nvml.Return)              { return "1", nvml.SUCCESS }
func (i *identified) GetVbiosVersion() (string, nvml.Return)        { return "1", nvml.SUCCESS }
func (i *identified) GetInforomImageVersion() (string, nvml.Return) { return "1", nvml.SUCCESS }
func (i *identified) GetInforomVersion(nvml.InforomObject) (string, nvml.Return) {
	return "1", nvml.SUCCESS
}

func (i *identified) GetMigMode() (current, pending int, ret nvml.Return) {
	i.modes++
	return i.modes % 2, 0, nvml.SUCCESS
}
func (i *identified) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return nvml.GpmSupport{}, nvml.ERROR_NOT_SUPPORTED
}
func (i *identified) GetMaxMigDeviceCount() (int, nvml.Return) { return 0, nvml.SUCCESS }

func listing(t *testing.T) (*Driver, *twoGPUs) {
	t.Helper()
	lib := &twoGPUs{}
	d := bareDriver(t, &lib.bare, &bareGPU{})
	d.lib, d.devices, d.listed = lib, map[gpu.UUID]*device{}, map[gpu.UUID]listed{}
	return d, lib
}

// TestGPUs_OneIsLost_OnlyItIsAskedAgain: while a GPU is lost, the others are not identified again in each interval.
func TestGPUs_OneIsLost_OnlyItIsAskedAgain(t *testing.T) {
	t.Parallel()
	d, lib := listing(t)
	for range 3 {
		identities, broken, err := d.GPUs(t.Context())
		require.NoError(t, err)
		require.Len(t, identities, 1)
		assert.Equal(t, gpu.UUID("GPU-a"), identities[0].UUID)
		require.Len(t, broken, 1)
		require.ErrorIs(t, broken[0].Err, gpu.ErrLost)
		assert.Equal(t, 1, broken[0].Index)
	}
	assert.Equal(t, [2]int{1, 3}, lib.asked)
	before, err := d.at("GPU-a")
	require.NoError(t, err)
	lib.found = true
	for range 2 {
		identities, broken, err := d.GPUs(t.Context())
		require.NoError(t, err)
		assert.Empty(t, broken)
		require.Len(t, identities, 2)
		assert.Equal(t, gpu.UUID("GPU-b"), identities[1].UUID)
	}
	assert.Equal(t, [2]int{1, 4}, lib.asked)
	after, err := d.at("GPU-a")
	require.NoError(t, err)
	assert.Same(t, before, after, "its samples stay")
	assert.Len(t, d.present(), 2)
}

// TestGPUs_BesideRound_IdentityGuarded: a worker that finds a changed MIG mode reads the identity again, concurrently with a search for
// lost GPUs.
func TestGPUs_BesideRound_IdentityGuarded(t *testing.T) {
	t.Parallel()
	d, _ := listing(t)
	_, _, err := d.GPUs(t.Context())
	require.NoError(t, err)
	const rounds = 50
	var both sync.WaitGroup
	both.Go(func() {
		for range rounds {
			_, _, err := d.MIGDevices(t.Context(), "GPU-a")
			assert.NoError(t, err)
		}
	})
	for range rounds {
		identities, _, err := d.GPUs(t.Context())
		require.NoError(t, err)
		require.Len(t, identities, 1)
	}
	both.Wait()
	identity, _, err := d.MIGDevices(t.Context(), "GPU-a")
	require.NoError(t, err)
	identities, _, err := d.GPUs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, identity, identities[0], "as the last round has read it")
}
