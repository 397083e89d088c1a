package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// busyAfter is how long Sweep waits for a lock. Who holds it for longer is at work: what is his is nobody's orphan.
const busyAfter = 5 * time.Second

// Kept returns the records of this node's claims in the order of their UIDs. checkpoint.ErrUnreadable: there are others.
func (t *Transaction) Kept() ([]*checkpoint.Record, error) {
	records, damaged, err := t.Records.All()
	t.report(damaged...)
	return records, err
}

// Sweep takes away what is certainly ours and certainly nobody's: CDI specs of claims without record, hardware effects that
// no record of this boot names, files that somebody died of writing. It does not know who runs on the node, so the caller says
// which devices containers have, by their names in our CDI specs: their claims keep spec and effects although their record may
// be lost. Sure: the caller has been watching for so long that no other container can have any. Until then what may belong to a
// claim with a damaged record stays. The errors are one for each thing that could not be taken away; removed is what was, in any case.
func (t *Transaction) Sweep(ctx context.Context, inUse []string, sure bool) (removed []Orphan, err error) {
	s := sweep{tx: t, inUse: inUse}
	if !sure {
		if s.damaged, err = t.Records.SetAside(); err != nil {
			return nil, err
		}
	}
	s.specs(ctx)
	if len(s.damaged) == 0 { // an effect does not tell whose it is
		s.effects(ctx)
	}
	s.unfinished(ctx, "record", t.Records)
	s.unfinished(ctx, "CDI spec", t.Specs)
	return s.removed, errors.Join(s.failed...)
}

// sweep is one Sweep.
type sweep struct {
	tx    *Transaction
	inUse []string
	// damaged are the claims that may be in use although their record is lost.
	damaged []string
	removed []Orphan
	failed  []error
}

// fail notes why something could not be taken away.
func (s *sweep) fail(err error) { s.failed = append(s.failed, err) }

// specs removes the CDI specs of claims that have neither record nor container.
func (s *sweep) specs(ctx context.Context) {
	uids, err := s.tx.Specs.Claims() // before the records: a claim that is being prepared has its record before its spec
	if err != nil {
		s.fail(err)
		return
	}
	records, _ := s.tx.Kept() // what cannot be read is seen by who looks at that claim under its lock
	for _, uid := range uids {
		if of(uid, records) != nil || given(uid, s.inUse) || slices.Contains(s.damaged, uid) {
			continue
		}
		gone, err := s.look(ctx, uid, func(_ context.Context, r *checkpoint.Record) (bool, error) {
			if r != nil || !among(uid, s.tx.Specs.Claims) {
				return false, nil
			}
			return true, s.tx.Specs.Remove(uid)
		})
		s.tally(Orphan{Kind: OrphanSpec, Claim: checkpoint.Claim{UID: uid}}, gone, err)
	}
}

// writing is a directory of files that are written under another name first.
type writing interface {
	Unfinished() (uids []string, err error)
	Discard(uid string) error
}

// unfinished removes what is half written and nobody writes any more, of claims with and without record.
func (s *sweep) unfinished(ctx context.Context, what string, dir writing) {
	uids, err := dir.Unfinished()
	if err != nil {
		s.fail(err)
		return
	}
	for _, uid := range uids {
		gone, err := s.look(ctx, uid, func(ctx context.Context, r *checkpoint.Record) (bool, error) {
			if r != nil { // who pays a debt writes its record under the locks of its GPUs alone
				unlock, err := s.tx.lock(ctx, touched(r))
				if err != nil {
					return false, err
				}
				defer unlock()
			}
			if !among(uid, dir.Unfinished) {
				return false, nil
			}
			return true, dir.Discard(uid)
		})
		s.tally(Orphan{Kind: OrphanFile, Claim: checkpoint.Claim{UID: uid}, What: what}, gone, err)
	}
}

// look does something under the claim's lock with its record, nil when there is none. A claim that somebody works on, and one
// whose record only a newer version may act on, is left alone.
func (s *sweep) look(ctx context.Context, uid string, do func(context.Context, *checkpoint.Record) (gone bool, err error)) (gone bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, busyAfter)
	defer cancel()
	gone, err = s.locked(waiting, uid, do)
	if busy := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; busy {
		return false, nil
	}
	if _, newer := errors.AsType[*checkpoint.NewerError](err); newer {
		return false, nil
	}
	return gone, err
}

func (s *sweep) locked(ctx context.Context, uid string, do func(context.Context, *checkpoint.Record) (bool, error)) (bool, error) {
	unlock, err := s.tx.Locks.Claim(ctx, uid)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, err := s.tx.load(uid)
	if err != nil {
		return false, err
	}
	return do(ctx, r)
}

// tally notes what became of an orphan.
func (s *sweep) tally(o Orphan, gone bool, err error) {
	switch {
	case err != nil:
		s.fail(fmt.Errorf("removing what nobody owns, %s: %w", o, err))
	case gone:
		s.removed = append(s.removed, o)
	}
}

// among tells whether the claim is still in a list. A list that cannot be had has it: removing is then no worse than before.
func among(uid string, list func() ([]string, error)) bool {
	uids, err := list()
	return err != nil || slices.Contains(uids, uid)
}

// given tells whether a container has a device of the claim.
func given(uid string, inUse []string) bool {
	return slices.ContainsFunc(inUse, func(device string) bool { return strings.HasPrefix(device, uid+"-") })
}

// of returns the claim's record, nil when it is not among these.
func of(uid string, records []*checkpoint.Record) *checkpoint.Record {
	i := slices.IndexFunc(records, func(r *checkpoint.Record) bool { return r.Claim.UID == uid })
	if i < 0 {
		return nil
	}
	return records[i]
}
