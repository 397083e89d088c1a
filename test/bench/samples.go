package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Samples are durations of one kind.
type Samples []time.Duration

// Quantile returns the smallest sample that is not exceeded by at least q of all samples (nearest rank), and zero without samples.
func (s Samples) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// P50 is the median.
func (s Samples) P50() time.Duration { return s.Quantile(.5) }

// P99 is exceeded by one sample in a hundred; with fewer than a hundred samples it is the largest.
func (s Samples) P99() time.Duration { return s.Quantile(.99) }

// milliseconds prints a duration with two or three significant digits.
func milliseconds(d time.Duration) string {
	ms := d.Seconds() * 1e3
	switch {
	case ms < .1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}
