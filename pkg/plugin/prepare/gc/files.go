package gc

import (
	"context"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// files collects CDI specs and unfinished files.
type files struct {
	*Collector
	*outcome
}

// specs removes the CDI specs of claims that have neither record nor container. Damaged are claims whose record is lost and that may be
// in use.
func (f files) specs(ctx context.Context, inUse, damaged []string) {
	uids, err := f.options.Specs.Claims() // before the records: the record of a claim that is being prepared is written before its spec
	if err != nil {
		f.fail(err)
		return
	}
	records, _ := f.options.Guard.All() // an unreadable record is found when its claim is inspected under its lock
	for _, uid := range uids {
		recorded := slices.ContainsFunc(records, func(r *checkpoint.Record) bool { return r.Claim.UID == uid })
		if recorded || inUseBy(uid, inUse) || slices.Contains(damaged, uid) {
			continue
		}
		gone, err := f.UnderLock(ctx, uid, func(_ context.Context, r *checkpoint.Record) (bool, error) {
			if r != nil || !among(uid, f.options.Specs.Claims) {
				return false, nil
			}
			return true, f.options.Specs.Remove(uid)
		})
		f.add(Leak{Kind: LeakedSpec, Claim: checkpoint.Claim{UID: uid}}, gone, err)
	}
}

// unfinished removes files whose writing was interrupted, of claims with and without record.
func (f files) unfinished(ctx context.Context, what string, dir Unfinished) {
	uids, err := dir.Unfinished()
	if err != nil {
		f.fail(err)
		return
	}
	for _, uid := range uids {
		gone, err := f.UnderLock(ctx, uid, func(ctx context.Context, r *checkpoint.Record) (bool, error) {
			if r != nil { // a pending cleanup is written under the locks of its GPUs alone
				unlock, err := f.options.Guard.Lock(ctx, r.LockedGPUs())
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
		f.add(Leak{Kind: LeakedFile, Claim: checkpoint.Claim{UID: uid}, What: what}, gone, err)
	}
}

// among reports whether the claim is still in a list. With an error the answer is yes, so that the removal goes on.
func among(uid string, list func() ([]string, error)) bool {
	uids, err := list()
	return err != nil || slices.Contains(uids, uid)
}
