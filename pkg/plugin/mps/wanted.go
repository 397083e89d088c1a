package mps

import (
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Shared is a device that prepared claims share with MPS.
type Shared struct {
	ID gpu.MPSDaemonID
	// GPU is the physical GPU.
	GPU gpu.UUID
	// Shares counts the claims' shares.
	Shares int
	// settings are the daemon's settings at its start.
	settings claim.MPSDefaults
}

// shared lists the devices that the prepared claims of this boot share, in the order of their daemons. Claims may have been prepared under
// different configurations: the daemon of a device gets the most of each setting, as no client may have more than the daemon's.
func shared(records []*checkpoint.Record, bootID string) []Shared {
	byID := map[gpu.MPSDaemonID]Shared{}
	for _, r := range records {
		if r.State != checkpoint.Done || r.BootID != bootID {
			continue
		}
		for i := range r.Steps {
			step := &r.Steps[i]
			if step.Kind != claim.StepMPS {
				continue
			}
			wanted, err := claim.ParseMPS(step.Args)
			if err != nil {
				continue
			}
			d, known := byID[wanted.Daemon]
			if !known {
				d = Shared{ID: wanted.Daemon, GPU: step.Target, settings: wanted.Default}
			}
			d.Shares++
			d.settings = claim.MPSDefaults{
				MemoryMiB:              most(d.settings.MemoryMiB, wanted.Default.MemoryMiB),
				ActiveThreadPercentage: most(d.settings.ActiveThreadPercentage, wanted.Default.ActiveThreadPercentage),
				ShmBytes:               max(d.settings.ShmBytes, wanted.Default.ShmBytes),
			}
			byID[wanted.Daemon] = d
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b Shared) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
}

// most is the larger one of two limits, of which 0 is none.
func most[T int | int64](a, b T) T {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// spec are the settings of the daemon of a device.
func (d *Shared) spec(device string) gpu.MPSDaemonSpec {
	return gpu.MPSDaemonSpec{
		GPU: d.GPU, Device: device, MemoryMiB: d.settings.MemoryMiB,
		ActiveThreadPercentage: d.settings.ActiveThreadPercentage, ShmBytes: d.settings.ShmBytes,
	}
}

// gibibyte is a GiB in MiB: from there on MPS reports memory limits rounded down to whole ones.
const gibibyte = 1024

// inForce reports whether the limits of the daemon and of its servers match its settings, as far as MPS reports them exactly.
func inForce(limits gpu.MPSLimitsInForce, spec gpu.MPSDaemonSpec) bool {
	if !reaches(limits.Default, spec) {
		return false
	}
	for _, server := range limits.Servers {
		if !reaches(server, spec) {
			return false
		}
	}
	return true
}

func reaches(limits gpu.MPSLimits, spec gpu.MPSDaemonSpec) bool {
	found, wanted := limits.MemoryMiB, spec.MemoryMiB
	if wanted >= gibibyte {
		found, wanted = found/gibibyte, wanted/gibibyte
	}
	// All SMs are as good as no limit. MPS may report a part of the SMs instead of the set value, which is 1 % off at most.
	off := part(limits.ActiveThreadPercentage) - part(float64(spec.ActiveThreadPercentage))
	return found == wanted && -1 <= off && off <= 1
}

func part(percentage float64) float64 {
	if percentage == 0 {
		return 100
	}
	return percentage
}
