package reconcile

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/prepare"
	"github.com/prism-gpu/prism/pkg/prepare/gc"
)

const (
	// Period is the time between two rounds; up to jitter of it is added, so that nodes that start together do not send requests together.
	Period = time.Minute
	jitter = 0.2
	// readTime is what the API server gets to answer, undoTime what undoing one claim may take.
	readTime = 5 * time.Second
	undoTime = 10 * time.Second
	// maxFailures is how many reads that fail end the reading of a round.
	maxFailures = 3
)

// Node is what this node keeps; prepare.Transaction does the work of the real one.
type Node interface {
	// Recover finishes what another process left, retries pending cleanups, and learns of those of other processes.
	Recover(ctx context.Context) error
	// Kept returns the records.
	Records() ([]*checkpoint.Record, error)
	// Collect removes what is leaked, but nothing of claims that have one of these devices; unless the list is complete, nothing
	// that may be of a claim whose record is lost.
	Collect(ctx context.Context, inUse []string, complete bool) ([]gc.Leak, error)
	// Unprepare takes back what was done for the claim. On an error the record stays, and Recover continues with it.
	Unprepare(ctx context.Context, claim checkpoint.Claim) error
}

// Claims reads claims at the API server.
type Claims interface {
	// Exists reports whether there is a claim of that name and that UID. It is false only where the API server answered so.
	Exists(ctx context.Context, claim checkpoint.Claim) (bool, error)
}

// Pods reads pods at the kubelet.
type Pods interface {
	// InUse lists the claims that containers have now: those with prepared devices of the driver, and own ones. An error: nothing is known.
	InUse(ctx context.Context, own func(namespace, name string) bool) ([]Use, error)
}

// Report informs operators.
type Report interface {
	// Removed reports what was removed in one round, never nothing.
	Removed(ctx context.Context, leaks []gc.Leak)
	// Failed reports what could not be done or read. It is not new where it was reported before, or may go away by itself.
	Failed(ctx context.Context, err error, isNew bool)
}

// Ports is what a Reconciler works on.
type Ports struct {
	Node   Node
	Claims Claims
	Pods   Pods
	Report Report
}

// Reconciler runs the rounds. One process per node may run it at a time: the one that has the lead lock.
type Reconciler struct {
	Ports
	absences absences
	watched  podWatch
	// undoing are claims whose undoing was begun and did not succeed yet, by UID.
	undoing map[string]checkpoint.Claim
	// failing counts for how many rounds the same has failed.
	failing, failed map[string]int
}

// New returns a Reconciler that has observed nothing yet.
func New(ports Ports) *Reconciler {
	return &Reconciler{
		Ports: ports, absences: absences{}, watched: podWatch{seen: map[string]time.Time{}}, undoing: map[string]checkpoint.Claim{},
		failed: map[string]int{},
	}
}

// Run runs a round at once and then one in every Period, until the context ends.
func (r *Reconciler) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, r.round, Period, jitter, true)
}

// round inspects everything once. What fails waits for the next round.
func (r *Reconciler) round(ctx context.Context) {
	r.failing = map[string]int{}
	defer func() { r.failed = r.failing }()
	for _, err := range each(r.Node.Recover(ctx)) {
		r.failure(ctx, err)
	}
	records, err := r.Node.Records() // an error concerns some of them; Recover returned it
	removed := r.finished(records, err == nil)
	if uses, ok := r.listed(ctx, claimsOf(records)...); ok {
		inUse, complete := r.watched.add(devices(uses), time.Now())
		leaks, err := r.Node.Collect(ctx, inUse, complete)
		for _, err := range each(err) {
			r.failure(ctx, err)
		}
		removed = append(removed, leaks...)
		removed = append(removed, r.claims(ctx, records, uses)...)
	} else {
		r.watched.fail()
		for uid := range r.absences {
			r.absences.add(uid, unknown, time.Now())
		}
	}
	if len(removed) > 0 {
		r.Report.Removed(ctx, removed)
	}
}

func claimsOf(records []*checkpoint.Record) (claims []checkpoint.Claim) {
	for _, record := range records {
		claims = append(claims, record.Claim)
	}
	return claims
}

// listed reads at the kubelet which claims containers have, of those without prepared devices the own ones; false when it does not answer.
func (r *Reconciler) listed(ctx context.Context, own ...checkpoint.Claim) ([]Use, bool) {
	type name struct{ namespace, name string }
	names := map[name]bool{}
	for _, claim := range own {
		names[name{claim.Namespace, claim.Name}] = true
	}
	uses, err := r.Pods.InUse(ctx, func(namespace, claim string) bool { return names[name{namespace, claim}] })
	if err != nil {
		r.outage(ctx, "kubelet", fmt.Errorf("listing the claims of containers: %w", err))
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
			delete(r.undoing, record.Claim.UID) // it was prepared again
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

// claims reads the claims that no container has, and undoes those that are gone for good. Recover undoes intents and retries pending
// cleanups; what a newer version prepared is left to that version.
func (r *Reconciler) claims(ctx context.Context, records []*checkpoint.Record, uses []Use) (removed []gc.Leak) {
	failures := 0
	for _, record := range records {
		claim := record.Claim
		if record.State != checkpoint.Done || record.Newer() {
			continue
		}
		reported := exists
		if !inUse(claim, uses) {
			reported = unknown
			if failures < maxFailures {
				reported = r.read(ctx, claim)
			}
			if reported == unknown {
				failures++
			}
		}
		if r.absences.add(claim.UID, reported, time.Now()) && r.undo(ctx, claim) {
			removed = append(removed, gc.Leak{Kind: gc.LeakedClaim, Claim: claim})
		}
	}
	return removed
}

// read reads one claim at the API server.
func (r *Reconciler) read(ctx context.Context, claim checkpoint.Claim) report {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	found, err := r.Claims.Exists(ctx, claim)
	switch {
	case err != nil:
		r.outage(ctx, "API server", fmt.Errorf("checking whether claims are gone: %w", err))
		return unknown
	case found:
		return exists
	default:
		return gone
	}
}

// undo undoes a claim, unless a container has it now: reading other claims may have taken long since the kubelet answered.
func (r *Reconciler) undo(ctx context.Context, claim checkpoint.Claim) bool {
	uses, ok := r.listed(ctx, claim)
	if !ok || inUse(claim, uses) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	if err := r.Node.Unprepare(ctx, claim); err != nil {
		r.undoing[claim.UID] = claim
		r.failure(ctx, prepare.OfClaim("undoing deleted", claim, err))
		return false
	}
	return true
}
