package claim

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// StaticFix is the advice if a pre-created MIG device is not there.
const StaticFix = "it was pre-created by an administrator of the node; nvidia-smi -L shows there the remaining devices"

// Refusal is why a claim cannot be prepared, as its author reads it.
type Refusal struct {
	// Request and Device are the refused ones; empty if the whole claim is refused.
	Request, Device string
	// Cause is the problem.
	Cause string
	// Fix says how to correct it.
	Fix string
	// Transient: it may go away by itself, so a retry may help.
	Transient bool
	// Mendable: it lasts until something outside of the claim is changed, on the node or in its configuration. It is not worth a retry in
	// the same call, but the kubelet calls again, and then the claim is prepared.
	Mendable bool
	// Err is the error behind the cause; may be nil.
	Err error
	// Extension is the kind of the extension that the claim is refused for, Condition the reason of that extension's condition; both are empty
	// for another cause.
	Extension, Condition string
}

// Unwrap returns the error behind the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Error is one sentence: request, device, cause, fix, whether a retry helps.
func (r *Refusal) Error() string {
	var b strings.Builder
	if r.Request != "" {
		b.WriteString(`request "` + r.Request + `", `)
	}
	if r.Device != "" {
		b.WriteString("device " + r.Device + ": ")
	} else if r.Request != "" {
		return strings.TrimSuffix(b.String(), ", ") + ": " + r.sentence()
	}
	return b.String() + r.sentence()
}

func (r *Refusal) sentence() string {
	s := r.Cause
	if r.Fix != "" {
		s += "; " + r.Fix
	}
	if r.Transient || r.Mendable {
		return s + " (will be retried)"
	}
	return s + " (not retryable)"
}

// refusal is one that stays as long as the claim is as it is.
func refusal(r *resourceapi.DeviceRequestAllocationResult, fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: r.Device, Cause: fmt.Sprintf(cause, args...), Fix: fix}
}

// passing is a refusal that may go away by itself.
func passing(r *resourceapi.DeviceRequestAllocationResult, fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: r.Device, Cause: fmt.Sprintf(cause, args...), Fix: fix, Transient: true}
}
