package reconcile

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

const (
	// Period is the time between two rounds; up to jitter of it is added, so that nodes that start together do not send requests together.
	Period = time.Minute
	jitter = 0.2
	// readTime limits an answer of the API server, undoTime the undoing of one claim.
	readTime = 5 * time.Second
	undoTime = 10 * time.Second
	// maxFailures is the number of failed reads after which a round stops reading.
	maxFailures = 3
)

// Node is the state of this node; prepare.Transaction implements its work.
type Node interface {
	// Recover finishes the work of another process, retries pending cleanups, and learns about pending cleanups of other processes.
	Recover(ctx context.Context) error
	// Records returns the records.
	Records() ([]*checkpoint.Record, error)
	// Collect removes leaked effects, except effects of claims with one of these devices; unless the list is complete, it also keeps effects
	// that may belong to a claim whose record is lost.
	Collect(ctx context.Context, inUse []string, complete bool) ([]gc.Leak, error)
	// Unprepare undoes the preparation of the claim. On an error the record stays, and Recover continues with it.
	Unprepare(ctx context.Context, claim checkpoint.Claim) error
}

// Claims reads claims at the API server.
type Claims interface {
	// Exists reports whether a claim of that name and that UID exists. It is false only if the API server answered so.
	Exists(ctx context.Context, claim checkpoint.Claim) (bool, error)
}

// Pods reads pods at the kubelet.
type Pods interface {
	// InUse lists the claims that containers use now: claims with prepared devices of the driver, and claims for which own is true. An error:
	// nothing is known.
	InUse(ctx context.Context, own func(namespace, name string) bool) ([]Use, error)
}

// Report informs operators.
type Report interface {
	// Removed reports the removed leaks of one round, never an empty list.
	Removed(ctx context.Context, leaks []gc.Leak)
	// Failed reports a failed operation. It is not new if it was reported before, or may go away by itself.
	Failed(ctx context.Context, err error, isNew bool)
}

// Options are the dependencies of a Reconciler.
type Options struct {
	Node   Node
	Claims Claims
	Pods   Pods
	Report Report
}

// Reconciler runs the rounds. Only one process per node may run it at a time: the holder of the lead lock.
type Reconciler struct {
	Options
	absences absences
	watched  podWatch
	// undoing are claims whose undoing has begun and not succeeded yet, by UID.
	undoing map[string]checkpoint.Claim
	// failing counts the rounds in which the same operation has failed.
	failing, failed map[string]int
}

// New returns a Reconciler without observations.
func New(options Options) *Reconciler {
	return &Reconciler{
		Options: options, absences: absences{}, watched: podWatch{seen: map[string]time.Time{}}, undoing: map[string]checkpoint.Claim{},
		failed: map[string]int{},
	}
}

// Run runs a round at once and then one in every Period, until the context ends.
func (r *Reconciler) Run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, r.round, Period, jitter, true)
}

// round inspects everything once. Failed operations wait for the next round.
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

// listed queries the kubelet for the claims of containers; claims without prepared devices are listed if they are in own. It returns false
// if the kubelet does not answer.
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

// claims reads the claims that no container uses, and undoes claims that are permanently gone. Recover undoes intents and retries pending
// cleanups; claims that a newer version prepared are left to that version.
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

// undo undoes a claim, unless a container uses it now: reading other claims may have taken a long time since the kubelet answered.
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
