package inventory

import (
	"context"
	"time"
)

// AbsentInterval is the time between two probes of a machine without a GPU: one that is plugged in later is found within it.
const AbsentInterval = time.Minute

// AwaitGPU returns nil once mayHave reports that the machine may have a GPU, which it asks at once and then every AbsentInterval. It
// returns the context's error when that ends first.
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

// pause is how long to wait when an inventory with a GPU would wait that long: without one no driver will answer.
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
