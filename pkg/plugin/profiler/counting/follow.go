package counting

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

const (
	// pause is the shortest time between two checks of the collector's files, regardless of how often it writes them.
	pause = time.Second
	// unwatchedEvery is the interval of checks while a folder cannot be watched.
	unwatchedEvery = 30 * time.Second
	// linger is how long the collector's files are watched after the last claim: the collector may find busy counters until then.
	linger = 2 * time.Minute
	// recordsRetry is the pause after the records could not be read.
	recordsRetry = 30 * time.Second
)

// prepared is a claim with an order.
type prepared struct {
	claim checkpoint.Claim
	// state is the last state that was found.
	state counters.State
}

// Written follows the collector's progress from now on.
func (e *Extension) Written(r *checkpoint.Record) { e.follow(r.Claim) }

// follow follows the collector's progress with a claim.
func (e *Extension) follow(claim checkpoint.Claim) {
	if !e.options.Enabled {
		return
	}
	e.mu.Lock()
	e.ended.remove(claim.UID)
	if e.claims[claim.UID] == nil {
		e.claims[claim.UID] = &prepared{claim: claim}
	}
	e.mu.Unlock()
	e.awake()
}

// Released keeps the last condition of a claim: its order is removed next.
func (e *Extension) Released(uid string) {
	e.mu.Lock()
	of := e.claims[uid]
	if of == nil {
		e.mu.Unlock()
		return
	}
	delete(e.claims, uid)
	last := e.condition(e.read(uid))
	e.ended.add(uid, last)
	e.mu.Unlock()
	e.reportUnavailable(of.claim, last)
	e.awake()
}

// awake makes Run check the collector's files.
func (e *Extension) awake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Lead follows the claims of earlier processes. The garbage collection, which the same process runs, removes orders without a record.
func (e *Extension) Lead(ctx context.Context) {
	if !e.options.Enabled {
		return
	}
	if e.readBusy() {
		e.awake()
	}
	_ = wait.PollUntilContextCancel(ctx, recordsRetry, true, func(context.Context) (bool, error) {
		records, err := e.records()
		if err != nil {
			e.logger.Error(err, "Reading the claims whose performance counters are recorded failed and will be retried", "retryAfter", recordsRetry)
			return false, nil
		}
		for _, r := range records {
			if r.Extended(e.Kind()) && r.State == checkpoint.Done {
				e.follow(r.Claim)
			}
		}
		return true, nil
	})
}

// Run follows the collector while claims have orders or counters are busy, until the context ends. Otherwise it waits.
func (e *Extension) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
			e.watch(ctx)
		}
	}
}

// watch follows the collector until there has been no order and no busy GPU for some time.
func (e *Extension) watch(ctx context.Context) {
	w := &watches{open: func() (watcher, error) { return e.newWatcher(e.awake) }, failed: func(err error) {
		e.logger.Error(err, "The files of prism-collector cannot be watched and are checked regularly", "interval", unwatchedEvery)
	}}
	defer w.close()
	var idleSince time.Time
	for {
		// First watched and then read, so that no change in between is missed.
		uids := e.prepared()
		watched := w.set(e.options.Dir, e.folders(uids))
		for _, uid := range uids {
			e.check(uid)
		}
		var next <-chan time.Time
		switch busy := e.readBusy(); {
		case len(uids) > 0 || busy:
			idleSince = time.Time{}
			if !watched {
				next = time.After(unwatchedEvery)
			}
		case idleSince.IsZero():
			idleSince = time.Now()
			next = time.After(linger)
		case time.Since(idleSince) >= linger:
			return
		default:
			next = time.After(linger - time.Since(idleSince))
		}
		if !e.await(ctx, next) {
			return
		}
	}
}

// await returns when a check is due; false if the context has ended.
func (e *Extension) await(ctx context.Context, next <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	}
	select {
	case <-ctx.Done():
		return false
	case <-e.wake:
	case <-next:
	}
	return true
}

// prepared returns the UIDs of the claims with orders.
func (e *Extension) prepared() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	uids := make([]string, 0, len(e.claims))
	for uid := range e.claims {
		uids = append(uids, uid)
	}
	return uids
}

func (e *Extension) folders(uids []string) []string {
	folders := make([]string, 0, len(uids))
	for _, uid := range uids {
		folders = append(folders, e.path(uid, ""))
	}
	return folders
}

// check reads the state of a claim's order, and causes its status to be written again after a change.
func (e *Extension) check(uid string) {
	now := e.read(uid)
	e.mu.Lock()
	of := e.claims[uid]
	changed := of != nil && (of.state.Reason != now.Reason || of.state.Message != now.Message)
	if changed {
		of.state = now
	}
	e.mu.Unlock()
	if changed {
		e.options.Changed(uid)
	}
}

// readBusy reads which counters other programs use, and keeps new claims from them. It reports whether there are any.
func (e *Extension) readBusy() (some bool) {
	if !e.options.Enabled {
		return false
	}
	e.reading.Lock()
	defer e.reading.Unlock()
	var busy []gpu.UUID
	for _, uuid := range counters.ParseBusy(readFile(e.options.Dir, counters.BusyFile)) {
		busy = append(busy, gpu.UUID(uuid))
	}
	slices.Sort(busy)
	busy = slices.Compact(busy)
	if !slices.Equal(busy, e.busy) {
		e.busy = busy
		e.setBusy(busy)
	}
	return len(busy) > 0
}
