package timeslice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Keeper sets the intervals that the node's configuration wants. One process of a node has one that runs.
//
// It sets an interval when it comes to be wanted, and once when it begins to run: notes of this boot do not tell what is in force. A
// driver that was loaded meanwhile has forgotten all, and one without persistence mode may forget when the last program closes the
// GPU, which the plugin before this one may have been. Asking costs a run of the tool as well. Where a claim has set another one over
// it, the end of that claim brings it into force.
type Keeper struct {
	KeeperPorts
	// inForce is what this process has set; where nothing is known of a GPU it is set, or seen to be the driver's own.
	inForce map[gpu.UUID]gpu.Interval
	wake    chan struct{}

	mu sync.Mutex
	// failing are those whose interval could not be set, and why.
	failing map[gpu.UUID]string
}

// KeeperPorts is what a Keeper works with.
type KeeperPorts struct {
	Tool  Tool
	Notes *Notes
	// Alone runs something while no claim's work on the GPU is under way.
	Alone func(ctx context.Context, id gpu.UUID, do func(ctx context.Context) error) error
	// Wanted tells the interval of every GPU that can have one: it answers and is not in MIG mode. One that is left out for a while
	// may have lost what was set. An error: that is not known. gpu.ErrDriverNotLoaded: the driver went, and what was set with it.
	Wanted func() (map[gpu.UUID]gpu.Interval, error)
	// Changed returns a channel that is closed when Wanted may say something else than when it was asked for.
	Changed func() <-chan struct{}
	// Failed is told of what could not be set, once as long as that is so for the same reason. It must not block.
	Failed func(id gpu.UUID, interval gpu.Interval, err error)
}

// NewKeeper knows nothing of what is in force.
func NewKeeper(ports KeeperPorts) *Keeper {
	return &Keeper{KeeperPorts: ports, inForce: map[gpu.UUID]gpu.Interval{}, failing: map[gpu.UUID]string{}, wake: make(chan struct{}, 1)}
}

// What failed for a reason that may pass is tried again after retryFirst, twice as long each time up to retryMost.
const (
	retryFirst = 10 * time.Second
	retryMost  = 5 * time.Minute
)

// Look makes Run look again at what is wanted. It does not block.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run keeps the intervals until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	wait := retryFirst
	for {
		changed := k.Changed()
		var again <-chan time.Time
		if k.Keep(ctx) {
			again, wait = time.After(wait), min(2*wait, retryMost)
		} else {
			wait = retryFirst
		}
		select {
		case <-changed:
		case <-k.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// Keep sets what is wanted and not in force, GPU by GPU. It tells whether trying again without a change may help.
func (k *Keeper) Keep(ctx context.Context) (again bool) {
	wanted, err := k.Wanted()
	if errors.Is(err, gpu.ErrDriverNotLoaded) {
		clear(k.inForce)
		k.only(nil)
	}
	if err != nil {
		return false
	}
	maps.DeleteFunc(k.inForce, func(id gpu.UUID, _ gpu.Interval) bool { _, has := wanted[id]; return !has })
	k.only(wanted)
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		interval := wanted[id]
		if k.inForce[id] == interval || ctx.Err() != nil {
			continue
		}
		err := k.Alone(ctx, id, func(ctx context.Context) error { return k.keep(ctx, id, interval) })
		switch _, never := errors.AsType[*gpu.UnsupportedError](err); {
		case err == nil:
			k.inForce[id] = interval
			k.done(id)
			continue
		case !never:
			again = true
		}
		delete(k.inForce, id)
		if ctx.Err() == nil && k.fails(id, interval, err) {
			k.Failed(id, interval, err)
		}
	}
	return again
}

// Failing counts the GPUs whose interval is not as it is wanted because it could not be set.
func (k *Keeper) Failing() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.failing)
}

// fails notes why an interval could not be set, and tells whether that is news.
func (k *Keeper) fails(id gpu.UUID, interval gpu.Interval, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	why := fmt.Sprintf("%s: %v", interval, err)
	news := k.failing[id] != why
	k.failing[id] = why
	return news
}

// done notes that an interval is in force.
func (k *Keeper) done(id gpu.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.failing, id)
}

// only forgets the failures of GPUs that nothing is wanted of.
func (k *Keeper) only(wanted map[gpu.UUID]gpu.Interval) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.failing, func(id gpu.UUID, _ string) bool { _, has := wanted[id]; return !has })
}

// keep sets one GPU's interval, or has the end of a claim set it. The GPU's lock is held.
func (k *Keeper) keep(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	before, err := k.Notes.of(id)
	if err != nil {
		return err
	}
	if before.claim != "" {
		return k.Notes.setNode(id, interval)
	}
	if err := k.Notes.setClaim(id, ""); err != nil { // what an earlier boot left goes
		return err
	}
	if interval == gpu.IntervalDefault && before.node == "" {
		return k.Notes.setNode(id, interval)
	}
	if interval != gpu.IntervalDefault {
		if err := k.Notes.setNode(id, interval); err != nil {
			return err
		}
	}
	if err := k.Tool.SetTimeslice(ctx, id, interval); err != nil {
		if refused(err) {
			err = errors.Join(err, k.Notes.setNode(id, before.node))
		}
		return fmt.Errorf("setting what the node's configuration says: %w", err)
	}
	return k.Notes.setNode(id, interval)
}
