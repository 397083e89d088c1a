package profiler

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/driver"
)

const (
	// statusPause is the shortest time between two statuses of a claim about its profile.
	statusPause = 5 * time.Second
	// maxFollowed is the maximum number of claims that are followed after they were unprepared, while their last reports are imported.
	maxFollowed = 256
)

// followed reports prepared claims, and again when their profile changes.
type followed struct {
	driver.Reports
	// events are about claims; nil for none.
	events events.ClaimRecorder

	// reporting protects the known state of a claim and its last report, in the same order.
	reporting sync.Mutex

	mu         sync.Mutex
	claims     map[string]*followedClaim // by UID
	unprepared []string                  // of the claims, the one that was unprepared first before others
	wake       chan struct{}
}

// followedClaim is a claim whose reports are followed.
type followedClaim struct {
	record   *checkpoint.Record
	reported time.Time
	changed  bool // since it was reported
}

func newFollowed() *followed {
	return &followed{claims: map[string]*followedClaim{}, wake: make(chan struct{}, 1)}
}

// Follow writes the statuses of claims again when their profiles change. It returns the Reports that report claims.
func (p *Extension) Follow(reports driver.Reports) driver.Reports {
	p.followed.Reports = reports
	return p.followed
}

// Gone is called for a claim that is deleted, or no longer prepared: its profile is no longer reported.
func (p *Extension) Gone(claimUID string) { p.followed.drop(claimUID) }

// Prepared reports a claim: at once, or with the next change of its profile if the same was reported just before.
func (f *followed) Prepared(r *checkpoint.Record) {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	if reported(r) && f.again(r) {
		f.change(r.Claim.UID)
		return
	}
	f.Reports.Prepared(r)
	if reported(r) {
		f.remember(r, time.Now())
	}
}

// Refused reports why a claim is not prepared. Later changes of an earlier profile must not report it as prepared.
func (f *followed) Refused(rc *resourceapi.ResourceClaim, cause error) {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	f.drop(string(rc.UID))
	f.Reports.Refused(rc, cause)
}

// again reports whether the claim was reported within the last statusPause, with the same devices.
func (f *followed) again(r *checkpoint.Record) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.claims[r.Claim.UID]
	if known == nil || time.Since(known.reported) >= statusPause || !reflect.DeepEqual(known.record.Results, r.Results) {
		return false
	}
	known.record = r
	f.unprepared = except(f.unprepared, r.Claim.UID)
	return true
}

func (f *followed) remember(r *checkpoint.Record, reported time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unprepared = except(f.unprepared, r.Claim.UID)
	f.claims[r.Claim.UID] = &followedClaim{record: r, reported: reported}
}

func except(uids []string, one string) []string {
	return slices.DeleteFunc(uids, func(uid string) bool { return uid == one })
}

// unfollow follows an unprepared claim until a maximum of other claims were unprepared after it. Prepared claims are always followed.
func (f *followed) unfollow(claimUID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims[claimUID] == nil {
		return
	}
	f.unprepared = append(except(f.unprepared, claimUID), claimUID)
	if len(f.unprepared) > maxFollowed {
		delete(f.claims, f.unprepared[0])
		f.unprepared = f.unprepared[1:]
	}
}

func (f *followed) drop(claimUID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.claims, claimUID)
	f.unprepared = except(f.unprepared, claimUID)
}

// change marks the reports of a claim as changed. It does not block.
func (f *followed) change(claimUID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.claims[claimUID]
	if known == nil || known.changed {
		return
	}
	known.changed = true
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// due returns the changed claims that may be reported, and when to check again; nil: at the next change.
func (f *followed) due(now time.Time) (all []*checkpoint.Record, again <-chan time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := time.Duration(-1)
	for _, known := range f.claims {
		wait := known.reported.Add(statusPause).Sub(now)
		switch {
		case !known.changed:
		case wait <= 0:
			known.changed, known.reported = false, now
			all = append(all, known.record)
		case next < 0 || wait < next:
			next = wait
		}
	}
	if next >= 0 {
		again = time.After(next)
	}
	return all, again
}

// run reports changes of profiles until the context ends, each claim at most once in statusPause. A process that begins to lead reports all
// prepared claims: the claims' statuses should match the reports that it read.
func (f *followed) run(ctx context.Context) error {
	for {
		again := f.report()
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-again:
		}
	}
}

// report reports all due claims.
func (f *followed) report() (again <-chan time.Time) {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	changed, again := f.due(time.Now())
	for _, r := range changed {
		f.Reports.Prepared(r)
	}
	return again
}

// recall compares the statuses of all claims with reports with the store.
func (f *followed) recall(records []*checkpoint.Record) {
	for _, r := range records {
		if reported(r) && r.State == checkpoint.Done {
			if !f.again(r) {
				f.remember(r, time.Time{})
			}
			f.change(r.Claim.UID)
		}
	}
}
