package reconcile

import (
	"context"
	"errors"
)

// lasting is the round in which an outage is reported as new: kubelets and API servers are restarted, and waiting costs nothing.
const lasting = 2

// failure reports each error of successive rounds once.
func (r *Reconciler) failure(ctx context.Context, err error) { r.failedWith(ctx, err.Error(), err, 1) }

// outage reports once that a server does not answer, for any errors and any number of calls.
func (r *Reconciler) outage(ctx context.Context, server string, err error) {
	if r.failing[server] == 0 {
		r.failedWith(ctx, server, err, lasting)
	}
}

// failedWith reports an error, as new in the given round of successive failures.
func (r *Reconciler) failedWith(ctx context.Context, what string, err error, newIn int) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the process exits
	}
	r.failing[what] = r.failed[what] + 1
	r.Report.Failed(ctx, err, r.failing[what] == newIn)
}

// each splits an error that joins several.
func each(err error) []error {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
