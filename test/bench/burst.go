package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BurstClaims is the number of claims that are prepared at once, each in its own call, as for that many pods. Each whole GPU gets one
// claim. The others request admin access, for which a GPU may have several claims.
const BurstClaims = 100

const (
	burstRounds  = 6
	warmUpBursts = 1
)

// admins returns the GPUs with admin access.
func admins(gpus []Device) []Device {
	devices := make([]Device, 0, len(gpus))
	for _, d := range gpus {
		devices = append(devices, Device{Pool: d.Pool, Name: d.Name, Admin: true})
	}
	return devices
}

// forBurst returns the devices of a burst's claims: every whole GPU once, then each in turn with admin access.
func forBurst(gpus []Device) []Device {
	devices, admin := slices.Clone(gpus), admins(gpus)
	for i := len(devices); i < BurstClaims; i++ {
		devices = append(devices, admin[i%len(admin)])
	}
	return devices
}

// burst measures BurstClaims claims at once, and the machine's time for the same requests and writes without a driver.
func (b *bencher) burst(ctx context.Context) error {
	claims, err := b.claims.Make(ctx, (warmUpBursts+burstRounds+1)*BurstClaims, forBurst(b.devices))
	if err != nil {
		return err
	}
	counted, measured := claims[:BurstClaims], claims[BurstClaims:]
	r, err := AllAtOnce(ctx, b.plugin, measured, BurstClaims, warmUpBursts, b.claims.Reported)
	if err != nil {
		return err
	}
	gets, durables, err := b.burstFloor(ctx, counted)
	if err != nil {
		return err
	}
	for _, rows := range [][]Row{
		r.Last.rows("prepare: until the last answer", "unprepare: until the last answer", Latency{}),
		r.Each.rows("prepare: until each answer", "unprepare: until each answer", Latency{}),
		r.CPU.rows("prepare: CPU time of the plugin", "unprepare: CPU time of the plugin", Latency{}),
	} {
		b.report.Add(burstTitle(len(b.devices)), "", rows...)
	}
	b.report.Add(burstTitle(len(b.devices)), "",
		Row{Name: fmt.Sprintf("the floor of prepare %d times", BurstClaims), Samples: Samples{BurstClaims * b.floor.Prepare()}},
		Row{Name: fmt.Sprintf("%d GETs at once without a driver, until the last", BurstClaims), Samples: gets},
		Row{Name: fmt.Sprintf("%d durable writes without a driver, %d at once, until the last", BurstClaims, len(b.devices)), Samples: durables})
	b.burstCosts, err = CountSyscalls(ctx, b.plugin, counted, BurstClaims)
	return err
}

func burstTitle(gpus int) string {
	return fmt.Sprintf("%d claims at once, a call each: %d whole GPUs, %d with admin access", BurstClaims, gpus, BurstClaims-gpus)
}

// burstFloor measures the minimum for any driver, with claims that exist.
func (b *bencher) burstFloor(ctx context.Context, claims []Claim) (gets, durables Samples, err error) {
	get := func(c Claim) error {
		_, err := b.client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		return err
	}
	if gets, err = repeat(burstRounds, warmUpBursts, func() error {
		_, err := together(claims, get)
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("measuring GETs at once: %w", err)
	}
	work, err := os.MkdirTemp(b.pluginsDir(), "bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("measuring durable writes at once: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	round := 0
	durables, err = repeat(burstRounds, warmUpBursts, func() error {
		round++
		return inLanes(len(claims), len(b.devices), func(i int) error {
			return durable(work, fmt.Sprintf("record-%d-%d", round, i), make([]byte, recordSize))
		})
	})
	return gets, durables, err
}

// inLanes calls do(0) to do(n-1) in parallel lanes, one call of a lane after the other. It returns when all calls have returned.
func inLanes(n, lanes int, do func(i int) error) error {
	failed := make([]error, lanes)
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for i := lane; i < n && failed[lane] == nil; i += lanes {
				failed[lane] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}
