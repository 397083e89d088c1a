package nvml

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Functions of drivers that can limit the GPU memory of cgroups.
const (
	setMemoryLimits = "nvmlDeviceSetMemoryLimits_v1"
	getMemoryLimits = "nvmlDeviceGetMemoryLimits_v1"
)

// limitsMemory reports whether the driver has these functions, without a call into the driver.
func (s *Session) limitsMemory() bool {
	return s.driver.Has(setMemoryLimits, getMemoryLimits)
}

// MemoryLimits reads the limits of a cgroup on an inspected GPU, in one call.
func (s *Session) MemoryLimits(ctx context.Context, id gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	q, _, err := s.at(ctx, id)
	if err != nil {
		return gpu.MemoryLimits{}, err
	}
	limits, err := must(q, getMemoryLimits, func() (nvml.MemoryLimits_v1, nvml.Return) { return q.device.GetMemoryLimits_v1(cgroup) })
	return gpu.MemoryLimits{Soft: limits.SoftLimit, Hard: limits.HardLimit}, err
}

// SetMemoryLimits sets the limits of a cgroup on an inspected GPU, in one call. gpu.ErrPermission: the process is not root.
func (s *Session) SetMemoryLimits(ctx context.Context, id gpu.UUID, cgroup string, limits gpu.MemoryLimits) error {
	q, _, err := s.at(ctx, id)
	if err != nil {
		return err
	}
	_, err = must(q, setMemoryLimits, func() (struct{}, nvml.Return) {
		return struct{}{}, q.device.SetMemoryLimits_v1(cgroup, limits.Soft, limits.Hard)
	})
	return err
}
