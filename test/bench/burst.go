package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// BurstClaims is how many claims a Burst is of: one for each whole GPU, the others with admin access, which
// several claims have to one GPU.
const BurstClaims = 100

// Burst is BurstClaims claims at once, each in a call of its own, as those of as many pods are.
type Burst struct {
	Rounds

	// Gets are as many GETs of a claim at once, until the last, and Durables as many durable writes, one at a time for each
	// GPU: what the machine takes for them without a driver.
	Gets, Durables Samples
	// Costs are those of all claims of a round.
	Costs Costs
}

const (
	burstRounds  = 10
	warmUpBursts = 1
)

// MeasureBurst has the claims of each round prepared and unprepared at once.
func MeasureBurst(ctx context.Context, p *Plugin, c *Claims, claims []Claim) (b Burst, err error) {
	b.Rounds, err = AllAtOnce(ctx, p, c, claims, BurstClaims, warmUpBursts)
	return b, err
}

// floor measures, in a new directory below dir and with claims that exist, what no driver can do without.
func (b *Burst) floor(ctx context.Context, dir string, client kubernetes.Interface, claims []Claim, gpus int) (err error) {
	get := func(c Claim) error {
		_, err := client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		return err
	}
	if b.Gets, err = repeat(burstRounds, warmUpBursts, func() error {
		_, err := together(claims, get)
		return err
	}); err != nil {
		return fmt.Errorf("measuring GETs at once: %w", err)
	}
	work, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return fmt.Errorf("measuring durable writes at once: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	round := 0
	if b.Durables, err = repeat(burstRounds, warmUpBursts, func() error {
		round++
		return inLanes(len(claims), gpus, func(i int) error {
			return durable(work, fmt.Sprintf("record-%d-%d", round, i), make([]byte, recordSize))
		})
	}); err != nil {
		return fmt.Errorf("measuring durable writes at once: %w", err)
	}
	return nil
}

// inLanes does do(0) to do(n-1), those of one lane one after the other, and returns when all have ended.
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
