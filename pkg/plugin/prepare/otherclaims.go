package prepare

import (
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// heldError is the refusal of a GPU that another claim owns, or whose cleanup after another claim is still pending. Users without
// access to the other claim read the refusal, so its text does not name that claim; LogValues does.
type heldError struct {
	refusal *claim.Refusal
	other   checkpoint.Claim
	// cause is why the cleanup after the other claim is pending; nil for a claim that is not being released.
	cause error
	// released is closed when a claim releases a GPU after the refusal; nil if only time can help.
	released <-chan struct{}
}

func (e *heldError) Error() string { return e.refusal.Error() }

func (e *heldError) Unwrap() error { return e.refusal }

// redacted is an error whose own text names other claims.
type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string { return e.text }

func (e *redacted) Unwrap() error { return e.err }

// Redact returns err with another text for users: its own text names other claims, which may be in namespaces without access. The result is
// still err for errors.Is and errors.As, and LogValues returns its text.
func Redact(text string, err error) error { return &redacted{text: text, err: err} }

// OfClaim is the error of doing something to a claim, which its text names by the UID alone: it becomes an Event of the Node, in namespace
// default. LogValues returns the claim's name.
func OfClaim(doing string, of checkpoint.Claim, err error) error {
	return Redact(fmt.Sprintf("%s claim %s: %v", doing, of.UID, err), fmt.Errorf("%s claim %s/%s: %w", doing, of.Namespace, of.Name, err))
}

// LogValues returns the keys and values about other claims that an error of Prepare writes to the log, but not into its text. It returns
// nil if there are none.
func LogValues(err error) []any {
	var values []any
	if held, ok := errors.AsType[*heldError](err); ok {
		values = append(values, "heldBy", held.other.Namespace+"/"+held.other.Name, "heldByUID", held.other.UID)
		if held.cause != nil {
			values = append(values, "cleanup", held.cause.Error())
		}
	}
	if hidden, ok := errors.AsType[*redacted](err); ok {
		values = append(values, "detail", hidden.err.Error())
	}
	if unknown, ok := errors.AsType[*ownership.UnknownError](err); ok {
		values = append(values, "detail", unknown.Err.Error())
	}
	return values
}
