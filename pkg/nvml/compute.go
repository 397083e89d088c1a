package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// computeProfiles are NVML's compute instance profiles by their number of compute slices.
var computeProfiles = map[int]int{
	1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE,
	3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, 4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE,
	6: nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE, 7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
	8: nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE,
}

// filling finds the kind of compute instance with all multiprocessors of a GPU instance, or with most of them. It asks first for the kind
// with as many compute slices as the GPU instance, which nearly always fits. Then it costs one call, otherwise one for each kind.
func (q query) filling(instance nvml.GpuInstance, p *profile) (most nvml.ComputeInstanceProfileInfo, err error) {
	kinds := make([]int, 0, nvml.COMPUTE_INSTANCE_PROFILE_COUNT+1)
	first, known := computeProfiles[p.facts.Slices]
	if known {
		kinds = append(kinds, first)
	}
	for kind := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		if !known || kind != first {
			kinds = append(kinds, kind)
		}
	}
	found := false
	for _, kind := range kinds {
		info, has, err := may(q, "nvmlGpuInstanceGetComputeInstanceProfileInfo", func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			info, ret := instance.GetComputeInstanceProfileInfo(kind, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
			return info, absentProfile(ret)
		})
		if err != nil {
			return most, err
		}
		if has && (!found || info.MultiprocessorCount > most.MultiprocessorCount) {
			most, found = info, true
		}
		if found && most.MultiprocessorCount >= p.info.MultiprocessorCount {
			break
		}
	}
	if !found {
		return most, &gpu.UnsupportedError{Feature: fmt.Sprintf("a compute instance in GPU instance profile %s", p.facts.Name)}
	}
	return most, nil
}

// isPart reports whether a compute instance of that size leaves multiprocessors of its GPU instance to another one. It asks the driver only
// if the compute instance has all compute slices but not all multiprocessors.
func (q query) isPart(b *board, profileID, gi int, size *nvml.DeviceAttributes) (bool, error) {
	p, err := b.profile(q, profileID)
	if err != nil {
		return false, err
	}
	switch {
	case size.MultiprocessorCount >= p.info.MultiprocessorCount:
		return false, nil
	case size.MultiprocessorCount == 0 || int(size.ComputeInstanceSliceCount) < p.facts.Slices: // 0: the driver does not report it
		return int(size.ComputeInstanceSliceCount) < p.facts.Slices, nil
	}
	instance, err := q.instanceHandle(gi)
	if err != nil {
		return false, err
	}
	most, err := q.filling(instance, p)
	return size.MultiprocessorCount < most.MultiprocessorCount, err
}

// size reads the attributes of a MIG device; gpu.ErrNotFound if it is gone.
func (q query) size(handle nvml.Device) (nvml.DeviceAttributes, error) {
	return must(q, "nvmlDeviceGetAttributes_v2", vanished(handle.GetAttributes))
}
