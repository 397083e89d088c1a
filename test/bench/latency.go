package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Latency is how long the kubelet waits.
type Latency struct{ Prepare, Unprepare Samples }

// OneByOne prepares the claims one after the other, as many as there are GPUs, waits for what is done after the answers, and
// unprepares them one after the other; then come the next. The first claims warm up and do not count.
func OneByOne(ctx context.Context, p *Plugin, c *Claims, claims []Claim, gpus int) (l Latency, err error) {
	each := func(batch []Claim, call func(context.Context, ...Claim) error) (s Samples, err error) {
		for _, claim := range batch {
			took, err := timed(func() error { return call(ctx, claim) })
			if err != nil {
				return nil, err
			}
			s = append(s, took)
		}
		return s, nil
	}
	for batch := range slices.Chunk(claims, gpus) {
		prepare, err := each(batch, p.Prepare)
		if err != nil {
			return l, err
		}
		if err := c.Reported(ctx, batch...); err != nil {
			return l, err
		}
		unprepare, err := each(batch, p.Unprepare)
		if err != nil {
			return l, err
		}
		l.Prepare, l.Unprepare = append(l.Prepare, prepare...), append(l.Unprepare, unprepare...)
	}
	l.Prepare, l.Unprepare = l.Prepare[warmUp:], l.Unprepare[warmUp:]
	return l, nil
}

// warmUpRounds of AllAtOnce do not count.
const warmUpRounds = 3

// AllAtOnce prepares the claims in rounds of so many parallel calls, then unprepares them likewise. A sample is the time from
// the first call to the last answer.
func AllAtOnce(ctx context.Context, p *Plugin, c *Claims, claims []Claim, gpus int) (l Latency, err error) {
	for batch := range slices.Chunk(claims, gpus) {
		prepare, err := timed(func() error { return together(batch, func(one Claim) error { return p.Prepare(ctx, one) }) })
		if err != nil {
			return l, err
		}
		if err := c.Reported(ctx, batch...); err != nil {
			return l, err
		}
		unprepare, err := timed(func() error { return together(batch, func(one Claim) error { return p.Unprepare(ctx, one) }) })
		if err != nil {
			return l, err
		}
		l.Prepare, l.Unprepare = append(l.Prepare, prepare), append(l.Unprepare, unprepare)
	}
	l.Prepare, l.Unprepare = l.Prepare[warmUpRounds:], l.Unprepare[warmUpRounds:]
	return l, nil
}

func timed(run func() error) (time.Duration, error) {
	start := time.Now()
	err := run()
	return time.Since(start), err
}

// together runs do for all claims at once and returns when all have ended.
func together(claims []Claim, do func(Claim) error) error {
	failed := make([]error, len(claims))
	var wg sync.WaitGroup
	for i, claim := range claims {
		wg.Go(func() { failed[i] = do(claim) })
	}
	wg.Wait()
	return errors.Join(failed...)
}
