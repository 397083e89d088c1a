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

// crowd is many claims at once, in one of several processes.
type concurrentClaims struct {
	// Claims is their number, First the number of the first.
	Claims, First int
	// Owners is a directory for files that say who has a device: the one that makes it.
	Owners string
	// Leads: the process becomes the node's lead while it works.
	Leads bool
}

// maxConcurrent is how many claims of a crowd are at work at the same time.
const maxConcurrent = 16

// run prepares and unprepares every claim; claims of all processes want the same GPUs.
func (c *concurrentClaims) run(ctx context.Context, m *Machine, p *Process) error {
	if c.Leads {
		release, err := p.machine.State.Locks.Lead(ctx)
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

// one is one claim's life: it owns a GPU and looks at all.
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
		return errors.Join(fmt.Errorf("preparing %s again: another answer", act.Claim), err, give())
	}
	return errors.Join(give(), p.Unprepare(ctx, act.Claim))
}

// own says that this process has something, which nobody else may have at that time.
func (c *concurrentClaims) acquire(what string) (give func() error, err error) {
	file := filepath.Join(c.Owners, what)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s has two owners: %w", what, err)
	}
	return func() error { return errors.Join(f.Close(), os.Remove(file)) }, nil
}

// concurrentTimeout bounds the calls of a crowd, which wait for each other's GPUs.
const concurrentTimeout = 2 * time.Minute
