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
func OneByOne(ctx context.Context, p *Plugin, c *Claims, claims []Claim, gpus, warmUp int) (l Latency, err error) {
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
		l.add(prepare, unprepare)
	}
	l.Prepare, l.Unprepare = l.Prepare[warmUp:], l.Unprepare[warmUp:]
	return l, nil
}

// Rounds are waits of the kubelet for many calls at once.
type Rounds struct {
	// Last is from the first call of a round to its last answer, Each a single call.
	Last, Each Latency
	// CPU is the time that the plugin's process was on a CPU in a round.
	CPU Latency
}

// AllAtOnce prepares the claims in rounds of so many parallel calls, then unprepares them likewise. The first rounds warm up
// and do not count.
func AllAtOnce(ctx context.Context, p *Plugin, c *Claims, claims []Claim, atOnce, warmUp int) (r Rounds, err error) {
	for batch := range slices.Chunk(claims, atOnce) {
		prepared, err := oneRound(p, batch, func(one Claim) error { return p.Prepare(ctx, one) })
		if err != nil {
			return r, err
		}
		if err := c.Reported(ctx, batch...); err != nil {
			return r, err
		}
		unprepared, err := oneRound(p, batch, func(one Claim) error { return p.Unprepare(ctx, one) })
		if err != nil {
			return r, err
		}
		if warmUp--; warmUp < 0 {
			r.Last.add(Samples{prepared.last}, Samples{unprepared.last})
			r.Each.add(prepared.each, unprepared.each)
			r.CPU.add(Samples{prepared.cpu}, Samples{unprepared.cpu})
		}
	}
	return r, nil
}

// round is one half of a round.
type round struct {
	last, cpu time.Duration
	each      Samples
}

func oneRound(p *Plugin, batch []Claim, call func(Claim) error) (r round, err error) {
	before, err := cpuTime(p.PID)
	if err != nil {
		return r, err
	}
	start := time.Now()
	r.each, err = together(batch, call)
	r.last = time.Since(start)
	if err != nil {
		return r, err
	}
	after, err := cpuTime(p.PID)
	r.cpu = after - before
	return r, err
}

func (l *Latency) add(prepare, unprepare Samples) {
	l.Prepare, l.Unprepare = append(l.Prepare, prepare...), append(l.Unprepare, unprepare...)
}

func timed(run func() error) (time.Duration, error) {
	start := time.Now()
	err := run()
	return time.Since(start), err
}

// together runs do for all claims at once and returns when all have ended, with the time that each took.
func together(claims []Claim, do func(Claim) error) (Samples, error) {
	took, failed := make(Samples, len(claims)), make([]error, len(claims))
	var wg sync.WaitGroup
	for i, claim := range claims {
		wg.Go(func() { took[i], failed[i] = timed(func() error { return do(claim) }) })
	}
	wg.Wait()
	return took, errors.Join(failed...)
}
