package model

import (
	"math"
	"slices"
)

// NoMemoryLimit is the hard limit of a cgroup without a limit.
const NoMemoryLimit uint64 = math.MaxUint64

// MemoryLimits are the limits of a cgroup on a GPU, in bytes.
type MemoryLimits struct {
	Soft uint64 // protected from other cgroups
	Hard uint64 // the most that its processes can allocate
	Used uint64 // of the processes in it
}

// SetMemoryLimits limits the memory that the processes of a cgroup can allocate on a GPU. The cgroup is identified by the inode of its
// directory. It fails with NotSupported for a MIG device, NoPermission unless root calls, and InvalidArgument if soft is above hard, or one
// above the memory of the GPU. A soft limit is accounted until it is set to 0, also after the cgroup was removed.
func (s *Session) SetMemoryLimits(h Handle, cgroup uint64, limits MemoryLimits, root bool) error {
	if h.kind() != 0 {
		return NotSupported
	}
	return s.with(h, func(g *gpu) error {
		total := g.board.Memory.TotalMiB * mebi
		switch {
		case limits.Soft > limits.Hard || limits.Soft > total || limits.Hard != NoMemoryLimit && limits.Hard > total:
			return InvalidArgument
		case !root:
			return NoPermission
		case limits.Soft == 0 && limits.Hard == NoMemoryLimit:
			delete(g.limits, cgroup)
			return nil
		}
		if g.limits == nil {
			g.limits = map[uint64]MemoryLimits{}
		}
		g.limits[cgroup] = limits
		return nil
	})
}

// MemoryLimits reads the limits of a cgroup on a GPU, and the memory that its processes use.
func (s *Session) MemoryLimits(h Handle, cgroup uint64) (MemoryLimits, error) {
	limits := MemoryLimits{Hard: NoMemoryLimit}
	if h.kind() != 0 {
		return limits, NotSupported
	}
	err := s.with(h, func(g *gpu) error {
		if set, known := g.limits[cgroup]; known {
			limits = set
		}
		limits.Used = g.usedBy(cgroup)
		return nil
	})
	return limits, err
}

// protectedMemory returns the sum of all soft limits.
func (g *gpu) protectedMemory() uint64 {
	var sum uint64
	for _, limits := range g.limits {
		sum += limits.Soft
	}
	return sum
}

func (g *gpu) usedBy(cgroup uint64) uint64 {
	var sum uint64
	for _, c := range g.cuda.contexts {
		if slices.Contains(c.Cgroups, cgroup) {
			sum += c.used
		}
	}
	return sum
}

// room returns how much of the free memory the limits of cgroups leave.
func (g *gpu) room(cgroups []uint64, free uint64) uint64 {
	for _, cgroup := range cgroups {
		if limit, known := g.limits[cgroup]; known && limit.Hard != NoMemoryLimit {
			free = min(free, limit.Hard-min(limit.Hard, g.usedBy(cgroup)))
		}
	}
	return free
}

// shown returns the total memory that a process in the first of the cgroups sees: its limit.
func (g *gpu) shown(cgroups []uint64, total uint64) uint64 {
	if len(cgroups) == 0 {
		return total
	}
	if limit, known := g.limits[cgroups[0]]; known {
		total = min(total, limit.Hard)
	}
	return total
}
