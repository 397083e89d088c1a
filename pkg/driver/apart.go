package driver

import (
	"context"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// kept asks whether the API server keeps counters, and, where it does, whether the scheduler counts shares.
func (o *Offering) kept(ctx context.Context) (bool, error) {
	kept, err := o.ports.Counters(ctx)
	if err != nil || !kept {
		return kept, err
	}
	counted, err := o.ports.Shares(ctx)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgets = !counted
	return true, nil
}

// limit is what is left of an offer when nothing is on offer that only counters would keep apart, where there are none; and where the
// scheduler forgets shares, of one that has some. While nothing is known of the cluster it is the offer.
func (o *Offering) limit(offer gpu.Offer) gpu.Offer {
	forgotten := o.forgets && offer.Shared()
	if o.counters == nil || *o.counters && !forgotten {
		return offer
	}
	if *o.counters && offer.TimeSlice != nil && (offer.Whole || len(offer.MIG) > 0) {
		o.tell(advice{reason: events.SharedCountersUnsupported}, "The scheduler of a Kubernetes before 1.36.2 forgets that a GPU is in use by turns when it decides about other "+
			"uses of it, so a GPU with mode timeslice is offered in one way: whole where its configuration allows that, else in turns; "+
			"give such GPUs the mode timeslice alone, or upgrade Kubernetes")
	}
	return offer.WithoutCounters()
}
