package gpu

import "context"

// MemoryLimits limit the memory of a GPU that the processes of a cgroup can allocate, in bytes.
type MemoryLimits struct {
	// Soft is the amount that the driver keeps for them, Hard the most they can have; math.MaxUint64 is no limit.
	Soft, Hard uint64
}

// MemoryLimiter is the part of an open driver that limits the GPU memory of the processes of a cgroup (v2). Its errors are from this
// package; an *UnsupportedError for a driver that cannot. Limits end with the cgroup.
type MemoryLimiter interface {
	// MemoryLimits reads the limits of a cgroup, by the path of its directory as this process sees it.
	MemoryLimits(ctx context.Context, id UUID, cgroup string) (MemoryLimits, error)
	// SetMemoryLimits sets them.
	SetMemoryLimits(ctx context.Context, id UUID, cgroup string, limits MemoryLimits) error
}
