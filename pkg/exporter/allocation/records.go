package allocation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// records are the records of claims with devices: prepared claims, and claims that are being unprepared.
type records struct {
	found map[string]*checkpoint.Record
	// unreadable is the reason why a claim's record cannot be used, by claim.
	unreadable map[string]error
	// listing is the error of the last list of records.
	listing error
	// read is set after the first attempt to read all records: a new claim is then prepared now.
	read bool
}

func newRecords() records {
	return records{found: map[string]*checkpoint.Record{}, unreadable: map[string]error{}}
}

// namedUnreadable limits the unreadable records in an error.
const namedUnreadable = 5

// err returns which records are unknown, nil for none.
func (r *records) err() error {
	if r.listing != nil || len(r.unreadable) == 0 {
		return r.listing
	}
	var reasons []string
	for _, uid := range slices.Sorted(maps.Keys(r.unreadable)) {
		if reasons = append(reasons, r.unreadable[uid].Error()); len(reasons) == namedUnreadable {
			break
		}
	}
	return fmt.Errorf("%d records cannot be used, so containers of their claims are not named: %s", len(r.unreadable), strings.Join(reasons, "; "))
}

// put stores a claim's record and returns the record that it replaces, nil for none.
func (r *records) put(uid, bootID string, record *checkpoint.Record, err error) (before *checkpoint.Record) {
	before = r.found[uid]
	var newer *checkpoint.NewerError
	delete(r.unreadable, uid)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
		delete(r.found, uid)
	case errors.Is(err, checkpoint.ErrDamaged), errors.As(err, &newer):
		r.unreadable[uid] = err
		delete(r.found, uid)
	case err != nil:
		r.unreadable[uid] = err // the earlier record stays valid
	case record.BootID != bootID, record.State == checkpoint.Intent:
		delete(r.found, uid)
	default:
		r.found[uid] = record
	}
	return before
}

// release is a MIG device that a claim releases.
type release struct {
	mig gpu.UUID
	// claim is the UID.
	claim string
	// destroyed: it is not pre-created.
	destroyed bool
}

// released lists the MIG devices that a claim releases when its record changes from before to now; each may be nil for none.
func released(before, now *checkpoint.Record) (gone []release) {
	if now != nil && now.State == checkpoint.Done || before != nil && before.State == checkpoint.Releasing || before == nil && now == nil {
		return nil
	}
	record := now
	if record == nil {
		record = before
	}
	for i := range record.Results {
		if m := record.Results[i].MIG; m != nil && !record.Results[i].Admin && m.Identity.UUID != "" {
			gone = append(gone, release{gpu.UUID(m.Identity.UUID), record.Claim.UID, !m.Static})
		}
	}
	return gone
}

// readRecord reads one claim's record again.
func (t *Tracker) readRecord(uid string, changed chan<- struct{}) {
	t.takeIn(changed, func() []release {
		t.records.listing = nil
		return t.load(uid)
	})
}

// readRecords reads all records again.
func (t *Tracker) readRecords(changed chan<- struct{}) {
	t.takeIn(changed, func() []release {
		var gone []release
		uids, err := checkpoint.Reader{Dir: t.paths.records}.UIDs()
		if t.records.listing = err; err != nil {
			t.records.read = true
			return nil // earlier information stays valid
		}
		for _, uid := range slices.Concat(uids, slices.Collect(maps.Keys(t.records.found)), slices.Collect(maps.Keys(t.records.unreadable))) {
			gone = append(gone, t.load(uid)...)
		}
		t.records.read = true
		return gone
	})
}

// takeIn reads records, publishes changes, and reports the released MIG devices.
func (t *Tracker) takeIn(changed chan<- struct{}, read func() []release) {
	t.mu.Lock()
	gone := read()
	err := t.records.err()
	t.mu.Unlock()
	before := t.known.Load()
	t.renew()
	for _, r := range gone {
		for _, f := range t.releasing {
			f(r.mig, r.claim, r.destroyed)
		}
	}
	t.sources.note(SourceRecords, err)
	if before != t.known.Load() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// load reads a record and returns the MIG devices that its claim releases. The caller holds mu.
func (t *Tracker) load(uid string) []release {
	record, err := checkpoint.Reader{Dir: t.paths.records}.Load(uid)
	before := t.records.put(uid, t.bootID, record, err)
	now := t.records.found[uid]
	if t.records.unreadable[uid] != nil {
		return nil // the device may still exist
	}
	switch _, known := t.since[uid]; {
	case now == nil:
		delete(t.since, uid)
	case !known && !t.records.read:
		t.since[uid] = time.Time{} // it was prepared before this process began
	case !known, before != nil && before.State == checkpoint.Releasing && now.State == checkpoint.Done:
		t.since[uid] = time.Now()
	}
	if before != nil && now == nil {
		t.cri.exited(t.uses.drop(uid))
	}
	return released(before, now)
}
