package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// concurrentClaims is a load of many claims at once in one of several processes.
type concurrentClaims struct {
	// Claims is the number of claims, First the number of the first.
	Claims, First int
	// Owners is a directory with a file for each owned device, which the owner creates.
	Owners string
	// Leads: the process is the node's leader while it works.
	Leads bool
}

// maxConcurrent is the number of claims that are processed at the same time.
const maxConcurrent = 16

// run prepares and unprepares every claim; the claims of all processes compete for the same GPUs.
func (c *concurrentClaims) run(ctx context.Context, m *Machine, p *Process) error {
	if c.Leads {
		release, err := p.Machine.State.Locks.Lead(ctx)
		if err != nil {
			return err
		}
		defer release()
		give, err := c.acquire("lead")
		if err != nil {
			return err
		}
		defer func() { _ = give() }()
	}
	errs := make([]error, c.Claims)
	var claims sync.WaitGroup
	free := make(chan struct{}, maxConcurrent)
	for n := range c.Claims {
		claims.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			errs[n] = c.one(ctx, m, p, c.First+n)
		})
	}
	claims.Wait()
	return errors.Join(errs...)
}

// one prepares and unprepares one claim with a GPU and the monitor device.
func (c *concurrentClaims) one(ctx context.Context, m *Machine, p *Process, n int) error {
	mine := n % len(m.gpus)
	act := Act{Claim: fmt.Sprintf("uid-%d", n), GPUs: []int{mine}, Monitor: true}
	first, err := p.Prepare(ctx, m.claim(act))
	if err != nil {
		return fmt.Errorf("preparing %s: %w", act.Claim, err)
	}
	give, err := c.acquire(m.device(mine))
	if err != nil {
		return fmt.Errorf("claim %s: %w", act.Claim, err)
	}
	again, err := p.Prepare(ctx, m.claim(act))
	if err != nil || again.CDI.Devices[0] != first.CDI.Devices[0] {
		return errors.Join(fmt.Errorf("preparing %s again: another result", act.Claim), err, give())
	}
	return errors.Join(give(), p.Unprepare(ctx, act.Claim))
}

// acquire records that this process owns something; it fails if another process does.
func (c *concurrentClaims) acquire(what string) (give func() error, err error) {
	file := filepath.Join(c.Owners, what)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s has two owners: %w", what, err)
	}
	return func() error { return errors.Join(f.Close(), os.Remove(file)) }, nil
}

// concurrentTimeout bounds calls, which wait for GPUs of other claims.
const concurrentTimeout = 2 * time.Minute
