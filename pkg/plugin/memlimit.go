package plugin

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/memlimit"
)

// limitsMemory reports whether this node can limit the GPU memory of containers, as far as that is not the driver's: by cgroups, which only
// the runtime's hook finds.
func limitsMemory(hook *hookPrograms, host Host) bool {
	_, err := hook.Own()
	return err == nil && host.UnifiedCgroups()
}

// memoryEdits have the runtime request limits.
func (m *Machine) memoryEdits() memlimit.Edits {
	return memlimit.Edits{
		Hook: m.hook.createRuntime, Socket: m.cfg.HookSocket(),
		Supported: func(id gpu.UUID) bool {
			for _, g := range m.Inventory.Current().Node.GPUs {
				if g.UUID == id {
					return g.MemoryLimits
				}
			}
			return false
		},
	}
}

// serveLimits sets the limits that the runtime requests, until the context ends; none where the node has none.
func (m *Machine) serveLimits(ctx context.Context) error {
	if !limitsMemory(m.hook, m.adapters.Host) {
		return nil
	}
	return memlimit.Server{
		Socket: m.cfg.HookSocket(), Record: m.State.Records.Load, Driver: m.Inventory.MemoryLimiter, Cgroup: m.adapters.Host.Cgroup,
	}.Run(ctx)
}
