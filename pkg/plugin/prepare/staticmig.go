package prepare

import (
	"context"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// Static inspects pre-created (static) MIG devices. An administrator may replace them at any time: ids and placements are used again.
type Static interface {
	// There returns gpu.ErrNotFound when the GPU does not have just this device. A GPU that does not answer is another error.
	There(ctx context.Context, id gpu.UUID, m *checkpoint.MIG) error
}

// isStatic reports whether a result is a pre-created MIG device.
func isStatic(result checkpoint.Result) bool { return result.MIG != nil && result.MIG.Static }

// staticMIG verifies the pre-created MIG devices of records.
type staticMIG struct {
	port  Static
	guard *ownership.Guard
}

// check verifies that the pre-created devices are still those in the record: the driver does not report that an administrator has
// replaced one, and the inventory may not have been refreshed since. The GPUs' locks are held.
func (m staticMIG) check(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Results {
		result := &r.Results[i]
		if !isStatic(*result) {
			continue
		}
		if err := m.port.There(ctx, result.GPUUUID, result.MIG); err != nil {
			return &claim.Refusal{
				Request: result.Request, Device: result.Device, Cause: err.Error(), Transient: transient(err), Err: err,
				Fix: claim.StaticFix,
			}
		}
	}
	return nil
}

// checkLocked is check under the locks of the record's GPUs: work on a GPU shows intermediate states.
func (m staticMIG) checkLocked(ctx context.Context, r *checkpoint.Record) error {
	unlock, err := m.guard.Lock(ctx, r.LockedGPUs())
	if err != nil {
		return err
	}
	defer unlock()
	return m.check(ctx, r)
}

// replacedStatic is a result of the first record whose device was pre-created, and is to be created by the plugin according to the
// second one; nil without one.
func replacedStatic(before, now *checkpoint.Record) *checkpoint.Result {
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
