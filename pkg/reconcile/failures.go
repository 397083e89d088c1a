package reconcile

import (
	"context"
	"errors"
)

// lasting is the round in which an outage is news: kubelets and API servers are restarted, and nothing is lost by waiting.
const lasting = 2

// trouble tells once what fails in round after round.
func (r *Reconciler) trouble(ctx context.Context, err error) { r.note(ctx, err.Error(), err, 1) }

// outage tells once that somebody does not answer, whatever his words and however many questions.
func (r *Reconciler) outage(ctx context.Context, who string, err error) {
	if r.failing[who] == 0 {
		r.note(ctx, who, err, lasting)
	}
}

func (r *Reconciler) note(ctx context.Context, what string, err error, news int) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the process ends
	}
	r.failing[what] = r.failed[what] + 1
	r.Report.Failed(ctx, err, r.failing[what] == news)
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
