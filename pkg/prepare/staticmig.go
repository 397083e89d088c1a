package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Static looks for MIG devices that an administrator made. He may make others in their place at any time: ids and placements are used
// again.
type Static interface {
	// There returns gpu.ErrNotFound when the GPU does not have just this device. That a GPU does not answer is another error.
	There(ctx context.Context, id gpu.UUID, m *checkpoint.MIG) error
}

// isStatic tells whether a result is a MIG device that an administrator made.
func isStatic(result checkpoint.Result) bool { return result.MIG != nil && result.MIG.Static }

// static sees that what an administrator made is still what the record names: nobody tells when he makes something else of the GPU, and
// the inventory may not have looked since.
func (t *Transaction) static(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Results {
		result := &r.Results[i]
		if !isStatic(*result) {
			continue
		}
		if err := t.Static.There(ctx, result.GPUUUID, result.MIG); err != nil {
			return &claim.Refusal{
				Request: result.Request, Device: result.Device, Cause: err.Error(), Transient: transient(err), Err: err,
				Fix: claim.StaticFix,
			}
		}
	}
	return nil
}

// plan resolves the claim. One that was prepared with a MIG device of an administrator is refused as long as there is no such device,
// and keeps its record: the plugin makes none in its place.
func (t *Transaction) plan(ctx context.Context, rc *resourceapi.ResourceClaim, before *checkpoint.Record) (*claim.Plan, error) {
	plan, err := t.Planner.Resolve(rc)
	if before == nil || !slices.ContainsFunc(before.Results, isStatic) {
		return plan, err
	}
	wanted := before
	if err == nil {
		wanted = t.record(plan)
		if made := remade(before, wanted); made != nil {
			wanted, err = before, &claim.Refusal{
				Request: made.Request, Device: made.Device, Transient: true, Fix: claim.StaticFix,
				Cause: fmt.Sprintf("MIG device %s is not advertised now", made.MIG.Identity.UUID),
			}
		}
	}
	if gone := t.there(ctx, wanted); gone != nil && (err == nil || errors.Is(gone, gpu.ErrNotFound)) {
		err = gone
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// remade is a result of the first record for which an administrator made the device, and of which the second one says that the plugin
// makes it; nil without one.
func remade(before, now *checkpoint.Record) *checkpoint.Result {
	for i := range before.Results {
		was := &before.Results[i]
		if isStatic(*was) && slices.ContainsFunc(now.Results, func(is checkpoint.Result) bool {
			return is.GPUUUID == was.GPUUUID && is.Device == was.Device && !isStatic(is)
		}) {
			return was
		}
	}
	return nil
}

// there is static under the locks of the record's GPUs: those who work on them show things in between.
func (t *Transaction) there(ctx context.Context, r *checkpoint.Record) error {
	unlock, err := t.lock(ctx, touched(r))
	if err != nil {
		return err
	}
	defer unlock()
	return t.static(ctx, r)
}
