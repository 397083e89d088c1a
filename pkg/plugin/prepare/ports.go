package prepare

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
	"github.com/prism-gpu/prism/pkg/plugin/prepare/gc"
)

// Records keeps one record per claim; checkpoint.Store is the real one.
type Records interface {
	ownership.Records
	gc.Records
	// Put is durable when it returns.
	Put(r *checkpoint.Record) error
	// Delete is durable when it returns; no error when there is nothing to delete.
	Delete(uid string) error
}

// Locks serialises work on claims and on GPUs; checkpoint.Locks is the real one.
type Locks = ownership.Locks

// Specs builds and stores CDI specs.
type Specs interface {
	gc.Specs
	// Build joins a spec and verifies that every device node is there; a device that cannot be prepared is a *cdi.DeviceError.
	Build(request cdi.SpecRequest) (*specs.Spec, error)
	// Write puts the record's spec in place, with the files that it mounts; a file with the same content is left alone.
	Write(r *checkpoint.Record, spec *specs.Spec) error
	// Holds reports whether the claim's spec is there with exactly these devices.
	Holds(claimUID string, devices []string) bool
}

// Planner reads claims, as claim.Source does against the node's present state.
type Planner interface {
	// AllocationKeys lists this driver's allocation results as they stand in the claim.
	AllocationKeys(rc *resourceapi.ResourceClaim) []claim.AllocationKey
	// Resolve returns a plan, or a *claim.Refusal with the reason why there is none. When the context has ended it returns an error.
	Resolve(ctx context.Context, rc *resourceapi.ResourceClaim) (*claim.Plan, error)
}

// Ports are the interfaces that a Transaction uses.
type Ports struct {
	Records Records
	Locks   Locks
	Specs   Specs
	Planner Planner
	// Steps are the kinds of effects a plan may name, Preconditions the kinds of states.
	Steps         Steps
	Preconditions map[string]Precondition
	// Extensions serve claims besides the steps. Records with data of other extensions wait for a version that knows them.
	Extensions Extensions
	// Static is called if a plan contains pre-created MIG devices.
	Static Static
}

// Options are the facts and limits of a Transaction. No listener may block, and each may be nil.
type Options struct {
	// CDIKind is the kind of the specs.
	CDIKind string
	// BootID is the machine's present boot.
	BootID string
	// Writer is this program's version.
	Writer string
	// RetryBudget bounds one call with all its waits and retries. The kubelet gives a call 45 s and tries again only after 60 to
	// 90 s.
	RetryBudget time.Duration
	// DeferCleanupAfter is for how long Unprepare reports that undoing fails before it returns nil, so that the pod is deleted, and leaves a pending cleanup.
	DeferCleanupAfter time.Duration
	// Retrying is called with the cause for which a claim's Prepare is about to wait and try again.
	Retrying func(rc *resourceapi.ResourceClaim, cause error)
	// Damaged is called with every record that had to be set aside after New returned.
	Damaged func(err error)
	// PendingCleanups is called with all pending cleanups, in the order of the GPUs, whenever they change, so that the scheduler can
	// be informed.
	PendingCleanups func([]gpu.PendingCleanup)
	// Loaded is called, once, with the records that New has read; the listener may keep them. It is not called if they cannot be read.
	Loaded func(records []*checkpoint.Record)
	// Withheld returns why no claim gets a GPU that is not prepared yet, nil if nothing prevents it. Claims with a record are prepared in
	// any case.
	Withheld func() error
	// Unhealthy returns the problems for which a GPU gets no new claims; none for a GPU without one.
	Unhealthy func(id gpu.UUID) []Problem
	// Now is the clock that pending cleanups are dated by.
	Now func() time.Time
}

// Problem is a problem of a GPU that keeps new claims from it.
type Problem struct {
	// Taint is the taint of the GPU's devices; its effect is NoSchedule or NoExecute.
	Taint resourceapi.DeviceTaint
	// Cause and Fix are the parts of the refusal's sentence: "GPU <uuid> …", and what to do.
	Cause, Fix string
}

// retrying is Retrying for one claim, nil without a listener.
func (s *Options) retrying(rc *resourceapi.ResourceClaim) func(cause error) {
	if s.Retrying == nil {
		return nil
	}
	return func(cause error) { s.Retrying(rc, cause) }
}
