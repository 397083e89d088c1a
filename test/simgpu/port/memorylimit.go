package port

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// limitsFrom is the driver branch from which NVML limits the memory of cgroups.
const limitsFrom = 615

// MemoryLimits reads the limits of a cgroup, which its directory identifies.
func (s *Session) MemoryLimits(ctx context.Context, id gpu.UUID, cgroup string) (limits gpu.MemoryLimits, err error) {
	err = s.limit(ctx, id, "nvmlDeviceGetMemoryLimits_v1", cgroup, func(handle model.Handle, inode uint64) error {
		set, err := s.session.MemoryLimits(handle, inode)
		limits = gpu.MemoryLimits{Soft: set.Soft, Hard: set.Hard}
		return err
	})
	return limits, err
}

// SetMemoryLimits sets them.
func (s *Session) SetMemoryLimits(ctx context.Context, id gpu.UUID, cgroup string, limits gpu.MemoryLimits) error {
	return s.limit(ctx, id, "nvmlDeviceSetMemoryLimits_v1", cgroup, func(handle model.Handle, inode uint64) error {
		return s.session.SetMemoryLimits(handle, inode, model.MemoryLimits{Soft: limits.Soft, Hard: limits.Hard}, true)
	})
}

func (s *Session) limit(ctx context.Context, id gpu.UUID, symbol, cgroup string, fn func(model.Handle, uint64) error) error {
	if version, _ := s.node.Driver(); version.Branch() < limitsFrom {
		return &gpu.UnsupportedError{Feature: symbol, Needs: "driver 615 or later"}
	}
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(cgroup, &stat); err != nil {
		return fmt.Errorf("%s: %w", symbol, &os.PathError{Op: "stat", Path: cgroup, Err: err})
	}
	return d.ask(symbol, func() error { return fn(d.handle, stat.Ino) })
}
