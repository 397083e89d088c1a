package prepare

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
)

// Prepare makes the claim's devices usable and returns its record, which is the answer. Repeating it gives the same answer.
// Causes that may go away by themselves are retried within the retry budget and the caller's deadline. After an error there
// are no effects, or a pending cleanup.
func (t *Transaction) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	ctx, cancel := withBudget(ctx, t.options.RetryBudget)
	defer cancel()
	unlock, err := t.guard.LockClaim(ctx, string(rc.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return retry(ctx, t.options.retrying(rc), func() (*checkpoint.Record, error) {
		before, err := t.answers.answer(ctx, rc)
		if err != nil || before.valid {
			return before.record, err
		}
		if before, err = t.rollback.incomplete(ctx, before); err != nil {
			return nil, err
		}
		r, preconditions, err := t.planning.plan(ctx, rc, before)
		if err != nil {
			return nil, err
		}
		if err := t.rollback.outdated(ctx, before); err != nil {
			return nil, err
		}
		if len(r.Results) == 0 {
			return r, nil
		}
		unlock, err := acquire(ctx, t.guard, t.rollback, r)
		if err != nil {
			return nil, err
		}
		defer unlock()
		if err := t.preflight.check(ctx, r, preconditions); err != nil {
			return nil, err
		}
		if err := t.execution.execute(ctx, r); err != nil {
			return nil, err
		}
		return r, t.execution.commit(ctx, r)
	})
}
