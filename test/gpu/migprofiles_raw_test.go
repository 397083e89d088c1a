package gpu_test

import (
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kind is a GPU instance profile or a compute instance profile, with NVML's index and its size.
type kind struct {
	Index                              int
	ID, Slices, Instances, SMs, MediaX uint32
	MemoryMiB                          uint64                        `json:",omitempty"`
	Placements                         []vendor.GpuInstancePlacement `json:",omitempty"`
}

// raw loads the driver's library directly, because pkg/nvml does not report unused profiles.
func raw(t *testing.T) []vendor.Device {
	t.Helper()
	session, root, _ := open(t)
	_, err := session.Driver(t.Context())
	require.NoError(t, err)
	lib := vendor.New(vendor.WithLibraryPath(root.Library))
	require.Equal(t, vendor.SUCCESS, lib.Init())
	t.Cleanup(func() { assert.Equal(t, vendor.SUCCESS, lib.Shutdown()) })
	count, ret := lib.DeviceGetCount()
	require.Equal(t, vendor.SUCCESS, ret)
	var devices []vendor.Device
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		require.Equal(t, vendor.SUCCESS, ret)
		devices = append(devices, device)
	}
	return devices
}

// instanceProfiles returns the GPU instance profiles that the driver reports, also with MIG mode disabled if it does.
func instanceProfiles(device vendor.Device) (list []kind) {
	for index := range vendor.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfo(index)
		if ret != vendor.SUCCESS {
			continue
		}
		placements, _ := device.GetGpuInstancePossiblePlacements(&info)
		list = append(list, kind{
			Index: index, ID: info.Id, Slices: info.SliceCount, Instances: info.InstanceCount, SMs: info.MultiprocessorCount,
			MediaX: info.JpegCount + info.OfaCount, MemoryMiB: info.MemorySizeMB, Placements: placements,
		})
	}
	return list
}

// computeProfiles returns the compute instance profiles that the driver reports for a GPU instance.
func computeProfiles(instance vendor.GpuInstance) (list []kind) {
	for index := range vendor.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(index, vendor.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == vendor.SUCCESS {
			list = append(list, kind{
				Index: index, ID: info.Id, Slices: info.SliceCount, Instances: info.InstanceCount, SMs: info.MultiprocessorCount,
				MediaX: info.SharedJpegCount + info.SharedOfaCount,
			})
		}
	}
	return list
}

// The test prints all profiles, and checks on existing GPU instances the assumption with which Prism chooses the compute instance profile.
// It creates no instances.
func TestComputeProfiles_ExistingInstances_OneHasAllMultiprocessors(t *testing.T) {
	for i, device := range raw(t) {
		profiles := instanceProfiles(device)
		show(t, "GPU instance profiles", profiles)
		for _, p := range profiles {
			assert.NotZero(t, p.SMs, "GPU %d, profile %d", i, p.ID)
			listed, ret := device.GetGpuInstances(&vendor.GpuInstanceProfileInfo{Id: p.ID, InstanceCount: p.Instances})
			if ret != vendor.SUCCESS {
				continue // not in MIG mode
			}
			for _, instance := range listed {
				inside := computeProfiles(instance)
				show(t, "compute instance profiles", inside)
				most := uint32(0)
				for _, c := range inside {
					most = max(most, c.SMs)
				}
				assert.Equal(t, p.SMs, most, "GPU %d, profile %d: one compute instance gets all multiprocessors", i, p.ID)
			}
		}
	}
}
