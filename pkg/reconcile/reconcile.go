package reconcile

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/prepare/gc"
)

const (
	// Period is the time between two rounds; up to jitter of it is added, so that nodes that start together do not ask together.
	Period = time.Minute
	jitter = 0.2
	// askTime is what the API server gets to answer, undoTime what undoing one claim may take.
	askTime  = 5 * time.Second
	undoTime = 10 * time.Second
	// enough is how many reads that fail end the asking of a round.
	enough = 3
)

// Node is what this node keeps; prepare.Transaction does the work of the real one.
type Node interface {
	// Settle finishes what another process left, tries to pay debts, and learns of those of others.
	Recover(ctx context.Context) error
	// Kept returns the records.
	Records() ([]*checkpoint.Record, error)
	// Sweep takes away what is nobody's, but nothing of claims that have one of these devices; unless the list is sure, nothing
	// that may be of a claim whose record is lost.
	Collect(ctx context.Context, inUse []string, sure bool) ([]gc.Leak, error)
	// Unprepare takes back what was done for the claim. On an error the record stays, and Settle goes on with it.
	Unprepare(ctx context.Context, claim checkpoint.Claim) error
}

// Claims asks the API server.
type Claims interface {
	// Exists tells whether there is a claim of that name and that UID. It is false only where the API server said so.
	Exists(ctx context.Context, claim checkpoint.Claim) (bool, error)
}

// Pods asks the kubelet.
type Pods interface {
	// InUse lists the claims that containers have now. An error: nothing is known.
	InUse(ctx context.Context) ([]Use, error)
}

// Report tells people.
type Report interface {
	// Removed tells what was taken away in one round, never nothing.
	Removed(ctx context.Context, orphans []gc.Leak)
	// Failed tells what could not be done or found out. It is no news where it was told before, or may go away by itself.
	Failed(ctx context.Context, err error, news bool)
}

// Ports is what a Reconciler works on.
type Ports struct {
	Node   Node
	Claims Claims
	Pods   Pods
	Report Report
}

// Reconciler makes the rounds. One process per node may run it at a time: the holder of the lead lock.
type Reconciler struct {
	Ports
	absences absences
	watched  watch
	// undoing are claims whose undoing was begun and did not succeed yet, by UID.
	undoing map[string]checkpoint.Claim
	// failing counts for how many rounds the same has failed.
	failing, failed map[string]int
}

// New returns a Reconciler that knows nothing yet.
func New(ports Ports) *Reconciler {
	return &Reconciler{Ports: ports, absences: absences{}, watched: watch{seen: map[string]time.Time{}}, undoing: map[string]checkpoint.Claim{}, failed: map[string]int{}}
}

// Run makes a round at once and then one in every Period, until the context ends.
func (r *Reconciler) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, r.round, Period, jitter, true)
}

// round looks at everything once. What fails waits for the next round.
func (r *Reconciler) round(ctx context.Context) {
	r.failing = map[string]int{}
	defer func() { r.failed = r.failing }()
	for _, err := range each(r.Node.Recover(ctx)) {
		r.trouble(ctx, err)
	}
	records, err := r.Node.Records() // an error is of some of them; Settle told it
	removed := r.finished(records, err == nil)
	if uses, ok := r.listed(ctx); ok {
		inUse, sure := r.watched.hear(devices(uses), time.Now())
		orphans, err := r.Node.Collect(ctx, inUse, sure)
		for _, err := range each(err) {
			r.trouble(ctx, err)
		}
		removed = append(removed, orphans...)
		removed = append(removed, r.claims(ctx, records, uses)...)
	} else {
		r.watched.miss()
		for uid := range r.absences {
			r.absences.hear(uid, silent, time.Now())
		}
	}
	if len(removed) > 0 {
		r.Report.Removed(ctx, removed)
	}
}

// listed asks the kubelet which claims containers have; false when it does not say.
func (r *Reconciler) listed(ctx context.Context) ([]Use, bool) {
	uses, err := r.Pods.InUse(ctx)
	if err != nil {
		r.outage(ctx, "kubelet", fmt.Errorf("looking for claims that nobody owns: %w", err))
		return nil, false
	}
	return uses, true
}

// finished returns the claims whose undoing failed in an earlier round and has succeeded since.
func (r *Reconciler) finished(records []*checkpoint.Record, all bool) (removed []gc.Leak) {
	kept := map[string]bool{}
	for _, record := range records {
		kept[record.Claim.UID] = true
		if record.State == checkpoint.Done {
			delete(r.undoing, record.Claim.UID) // it was prepared anew
		}
	}
	for uid, claim := range r.undoing {
		if all && !kept[uid] {
			removed = append(removed, gc.Leak{Kind: gc.LeakedClaim, Claim: claim})
			delete(r.undoing, uid)
		}
	}
	maps.DeleteFunc(r.absences, func(uid string, _ absence) bool { return !kept[uid] })
	return removed
}

// claims asks for the claims that no container has, and undoes those that are gone for good. Intents and debts are Settle's;
// what a newer version prepared is that version's.
func (r *Reconciler) claims(ctx context.Context, records []*checkpoint.Record, uses []Use) (removed []gc.Leak) {
	failures := 0
	for _, record := range records {
		claim := record.Claim
		if record.State != checkpoint.Done || record.Newer() {
			continue
		}
		said := there
		if !inUse(claim, uses) {
			said = silent
			if failures < enough {
				said = r.ask(ctx, claim)
			}
			if said == silent {
				failures++
			}
		}
		if r.absences.hear(claim.UID, said, time.Now()) && r.undo(ctx, claim) {
			removed = append(removed, gc.Leak{Kind: gc.LeakedClaim, Claim: claim})
		}
	}
	return removed
}

// ask asks the API server for one claim.
func (r *Reconciler) ask(ctx context.Context, claim checkpoint.Claim) word {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	exists, err := r.Claims.Exists(ctx, claim)
	switch {
	case err != nil:
		r.outage(ctx, "API server", fmt.Errorf("looking for claims that are gone: %w", err))
		return silent
	case exists:
		return there
	default:
		return gone
	}
}

// undo undoes a claim, unless a container has it now: others may have taken their time since the kubelet was asked.
func (r *Reconciler) undo(ctx context.Context, claim checkpoint.Claim) bool {
	uses, ok := r.listed(ctx)
	if !ok || inUse(claim, uses) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	if err := r.Node.Unprepare(ctx, claim); err != nil {
		r.undoing[claim.UID] = claim
		r.trouble(ctx, fmt.Errorf("undoing claim %s/%s (UID %s), which is gone: %w", claim.Namespace, claim.Name, claim.UID, err))
		return false
	}
	return true
}
