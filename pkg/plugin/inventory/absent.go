package inventory

import (
	"context"
	"time"
)

// AbsentInterval is the time between two probes of a machine without a GPU, and so the longest time until a new GPU is found.
const AbsentInterval = time.Minute

// AwaitGPU returns nil once mayHave reports that the machine may have a GPU. It calls mayHave at once and then every AbsentInterval. If the
// context ends first, it returns the context's error.
func AwaitGPU(ctx context.Context, mayHave func() bool, clock Clock) error {
	for !mayHave() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.after(AbsentInterval):
		}
	}
	return nil
}

// pause extends a wait to AbsentInterval if the machine has no GPU, because then no driver will answer.
func (i *Inventory) pause(wait time.Duration) time.Duration {
	if i.Current().Err != nil && i.opts.MayHaveGPU != nil && !i.opts.MayHaveGPU() {
		return max(wait, AbsentInterval)
	}
	return wait
}

func (c Clock) after(d time.Duration) <-chan time.Time {
	if c.After == nil {
		return time.After(d)
	}
	return c.After(d)
}
