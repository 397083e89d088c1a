package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Latency is the time that the kubelet waits.
type Latency struct{ Prepare, Unprepare Samples }

func (l *Latency) add(other Latency) {
	l.Prepare, l.Unprepare = append(l.Prepare, other.Prepare...), append(l.Unprepare, other.Unprepare...)
}

// rows returns a row for each half, with the given names and compared with base.
func (l Latency) rows(prepare, unprepare string, base Latency) []Row {
	return []Row{
		{Name: prepare, Samples: l.Prepare, Base: base.Prepare}, {Name: unprepare, Samples: l.Unprepare, Base: base.Unprepare},
	}
}

// Between runs after claims were prepared and before they are unprepared; nil does nothing.
type Between func(ctx context.Context, claims ...Claim) error

func (b Between) do(ctx context.Context, claims []Claim) error {
	if b == nil {
		return nil
	}
	return b(ctx, claims...)
}

// OneByOne prepares as many claims as there are GPUs, one after the other, and unprepares them one after the other; then the next ones
// follow. The first claims warm up and do not count.
func OneByOne(ctx context.Context, p *Plugin, claims []Claim, gpus, warmUp int, between Between) (l Latency, err error) {
	each := func(into *Samples, batch []Claim, call Between) error {
		for _, claim := range batch {
			took, err := timed(func() error { return call(ctx, claim) })
			if err != nil {
				return err
			}
			*into = append(*into, took)
		}
		return nil
	}
	for batch := range slices.Chunk(claims, gpus) {
		if err := each(&l.Prepare, batch, p.Prepare); err != nil {
			return l, err
		}
		if err := between.do(ctx, batch); err != nil {
			return l, err
		}
		if err := each(&l.Unprepare, batch, p.Unprepare); err != nil {
			return l, err
		}
	}
	l.Prepare, l.Unprepare = l.Prepare[warmUp:], l.Unprepare[warmUp:]
	return l, nil
}

// Rounds are the waiting times of the kubelet for many calls at once, until the last answer of a round and for each call, and the CPU time
// of the plugin's process in a round.
type Rounds struct{ Last, Each, CPU Latency }

// AllAtOnce prepares the claims in rounds of atOnce parallel calls, and unprepares them likewise. The first rounds warm up and do not
// count.
func AllAtOnce(ctx context.Context, p *Plugin, claims []Claim, atOnce, warmUp int, between Between) (r Rounds, err error) {
	for batch := range slices.Chunk(claims, atOnce) {
		var one Rounds
		half := func(last, each, cpu *Samples, call Between) error {
			before, err := cpuTime(p.PID)
			if err != nil {
				return err
			}
			start := time.Now()
			if *each, err = together(batch, func(c Claim) error { return call(ctx, c) }); err != nil {
				return err
			}
			*last = Samples{time.Since(start)}
			after, err := cpuTime(p.PID)
			*cpu = Samples{after - before}
			return err
		}
		if err := half(&one.Last.Prepare, &one.Each.Prepare, &one.CPU.Prepare, p.Prepare); err != nil {
			return r, err
		}
		if err := between.do(ctx, batch); err != nil {
			return r, err
		}
		if err := half(&one.Last.Unprepare, &one.Each.Unprepare, &one.CPU.Unprepare, p.Unprepare); err != nil {
			return r, err
		}
		if warmUp--; warmUp < 0 {
			r.Last.add(one.Last)
			r.Each.add(one.Each)
			r.CPU.add(one.CPU)
		}
	}
	return r, nil
}

func timed(run func() error) (time.Duration, error) {
	start := time.Now()
	err := run()
	return time.Since(start), err
}

// together calls do for all claims at once. It returns when all calls have returned, with the time of each.
func together(claims []Claim, do func(Claim) error) (Samples, error) {
	took, failed := make(Samples, len(claims)), make([]error, len(claims))
	var wg sync.WaitGroup
	for i, claim := range claims {
		wg.Go(func() { took[i], failed[i] = timed(func() error { return do(claim) }) })
	}
	wg.Wait()
	return took, errors.Join(failed...)
}
