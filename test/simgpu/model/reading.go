package model

import (
	"math"
	"slices"
	"time"
)

// Reading is the current activity of a GPU, and its counters.
type Reading struct {
	Board     Board
	Branch    int  // of the driver
	MIG       bool // the GPU is in MIG mode
	Instances int  // GPU instances
	At        time.Time
	Now       Quantities
	Sums      Quantities // since the driver was loaded; levels times seconds, or the number of events
	Lifetime  Quantities // events in the life of the board
	Health    Health
}

// Read reads the sensors and counters of a GPU. A MIG device has none: NotSupported.
func (s *Session) Read(h Handle) (Reading, error) {
	var r Reading
	err := s.withParent(h, func(g *gpu) error {
		if h.kind() != 0 {
			return NotSupported
		}
		g.advance(s.node.now())
		r = Reading{
			Board: g.board, Branch: s.node.driver.version.Branch(), MIG: g.mig.current, Instances: len(g.mig.instances),
			At: g.at, Sums: g.meter.sums, Health: g.health,
		}
		r.Now, _ = g.levels(g.at)
		for q := range quantities {
			r.Lifetime[q] = g.meter.before[q] + g.meter.sums[q]
		}
		return nil
	})
	return r, err
}

// Percent returns a level in percent without fraction.
func (r Reading) Percent(q Quantity) uint32 { return uint32(math.Floor(r.Now[q] + rounding)) }

// Whole returns a level without fraction.
func (r Reading) Whole(q Quantity) uint32 { return uint32(math.Round(r.Now[q])) }

// Milliwatts returns the power.
func (r Reading) Milliwatts() uint32 { return uint32(math.Round(r.Now[QuantityPower] * 1000)) }

// Millijoules returns the energy since the driver was loaded.
func (r Reading) Millijoules() uint64 { return uint64(r.Sums[QuantityPower] * 1000) }

// Bytes returns the traffic of a quantity in MiB/s since the driver was loaded.
func (r Reading) Bytes(q Quantity) uint64 { return uint64(r.Sums[q] * mebi) }

// Nanoseconds returns for how long a reason lowered the clocks since the driver was loaded.
func (r Reading) Nanoseconds(q Quantity) uint64 { return uint64(math.Round(r.Sums[q] * 1e9)) }

// Busy reports whether a kernel runs.
func (r Reading) Busy() bool { return r.Now[QuantitySM] > 0 || r.Now[QuantityGraphics] > 0 }

// PerformanceState returns 0 under load.
func (r Reading) PerformanceState() uint32 {
	if r.Busy() {
		return 0
	}
	return r.Board.Sensors().IdleState
}

// The reasons for lowered clocks, with NVML's bits.
var clockReasons = []struct {
	bit      uint64
	quantity Quantity
}{
	{0x4, QuantityThrottlePower}, {0x10, QuantityThrottleSyncBoost}, {0x20, QuantityThrottleThermal},
	{0x40 | 0x8, QuantityThrottleHWThermal}, {0x80 | 0x8, QuantityThrottlePowerBrake},
}

// Reasons of later drivers.
const (
	boardLimitReason  = 0x200
	reliabilityReason = 0x400
	reasonsBranch     = 615
)

// ClockReasons returns NVML's bits for the reasons of lowered clocks.
func (r Reading) ClockReasons() uint64 {
	var bits uint64
	if !r.Busy() {
		bits = 1 // idle
	}
	for _, row := range clockReasons {
		if r.Now[row.quantity] > 0 {
			bits |= row.bit
		}
	}
	if r.Branch >= reasonsBranch && r.Now[QuantityThrottleBoard] > 0 {
		bits |= boardLimitReason
	}
	if r.Branch >= reasonsBranch && r.Now[QuantityThrottleReliability] > 0 {
		bits |= reliabilityReason
	}
	return bits
}

// SupportedClockReasons returns the bits that ClockReasons can set.
func (r Reading) SupportedClockReasons() uint64 {
	const all = 0x1ff
	if r.Branch >= reasonsBranch {
		return all | boardLimitReason | reliabilityReason
	}
	return all
}

// RemappedRows reports whether NVML counts remapped rows: not before Ampere, and not beside GPU instances.
func (r Reading) RemappedRows() bool { return !r.Board.RetiresPages() && r.Instances == 0 }

// RowRemapFailed reports whether a row could not be remapped.
func (r Reading) RowRemapFailed() bool {
	return r.Health.RowRemapFailure || r.Lifetime[QuantityRowsFailed] > 0
}

// scripted reports whether a script controls the GPU or a GPU instance.
func (g *gpu) scripted() bool {
	return len(g.meter.script.Steps) > 0 ||
		slices.ContainsFunc(g.mig.instances, func(gi *gpuInstance) bool { return len(gi.meter.script.Steps) > 0 })
}

// scriptedMemory returns the memory in use at a time, without the memory of contexts, in bytes.
func (g *gpu) scriptedMemory(now time.Time) uint64 {
	if !g.scripted() {
		return 0
	}
	g.advance(now)
	whole, _ := g.levels(g.at)
	return uint64(whole[QuantityMemory]) * mebi
}

func (gi *gpuInstance) scriptedMemory(now time.Time) uint64 {
	if len(gi.meter.script.Steps) == 0 {
		return 0
	}
	levels := gi.meter.levels(now, Quantities{}, func(*Quantities) {})
	return uint64(levels[QuantityMemory]) * mebi
}
