package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Settle finishes what an earlier process left: intents are undone, debts are paid, missing specs of this boot's claims are
// made again. Records of an earlier boot wait for their Prepare or Unprepare. It may run beside calls: each claim is looked
// at anew under its lock. The errors are one per claim that could not be settled.
func (t *Transaction) Settle(ctx context.Context) error {
	records, _, err := t.Records.All()
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range records {
		if r.State == checkpoint.Done && (r.BootID != t.settings.BootID || t.Specs.Holds(r.Claim.UID, r.CDI.Devices)) {
			continue
		}
		if err := t.settle(ctx, r.Claim); err != nil {
			failed = append(failed, fmt.Errorf("settling claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err))
		}
	}
	return errors.Join(failed...)
}

func (t *Transaction) settle(ctx context.Context, c checkpoint.Claim) error {
	unlock, err := t.Locks.Claim(ctx, c.UID)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := t.Records.Load(c.UID)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
		return nil
	case err != nil:
		return err
	case r.State == checkpoint.Done:
		_, err := t.repeat(r)
		return err
	default:
		return t.release(ctx, r)
	}
}
