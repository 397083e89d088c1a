package plugin

import (
	"context"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/memlimit"
	"github.com/prism-gpu/prism/pkg/plugin/programs"
)

// limitsMemory reports whether this node can limit the GPU memory of containers, as far as that is not the driver's: by cgroups, which only
// the runtime's hook finds.
func limitsMemory(installed *programs.Set, host Host) bool {
	_, err := installed.Own()
	return err == nil && host.UnifiedCgroups()
}

// memoryEdits make the runtime request limits.
func (m *Machine) memoryEdits() memlimit.Extension {
	return memlimit.Extension{
		Hook: m.programs.CreateRuntime, Socket: m.cfg.HookSocket(),
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

// serveHook sets the limits that prism-hook requests, and reports the containers that it refuses, until the context ends; nothing without the
// program.
func (m *Machine) serveHook(ctx context.Context, refused func(r *checkpoint.Record, device, why string)) error {
	if _, err := m.programs.Own(); err != nil {
		return nil
	}
	return memlimit.Server{
		Socket: m.cfg.HookSocket(), Record: m.State.Records.Load, Driver: m.Inventory.MemoryLimiter, Cgroup: m.adapters.Host.Cgroup,
		Refused: refused,
	}.Run(ctx)
}
