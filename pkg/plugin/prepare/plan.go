package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// planning resolves claims.
type planning struct {
	planner Planner
	static  staticMIG
	options Options
}

// plan returns the record of the claim with its planned steps, and the preconditions of its GPUs.
func (p planning) plan(ctx context.Context, rc *resourceapi.ResourceClaim, e earlier) (*checkpoint.Record, []claim.Precondition, error) {
	plan, err := p.resolve(ctx, rc, e.record)
	if err != nil {
		return nil, nil, err
	}
	if err := p.withheld(plan, e); err != nil {
		return nil, nil, err
	}
	if err := p.unhealthy(plan, e); err != nil {
		return nil, nil, err
	}
	r, err := p.record(plan)
	return r, plan.Preconditions, err
}

// resolve makes the plan. A claim that was prepared with a pre-created MIG device is refused as long as that device is missing, and
// keeps its record: the plugin creates none in its place.
func (p planning) resolve(ctx context.Context, rc *resourceapi.ResourceClaim, before *checkpoint.Record) (*claim.Plan, error) {
	plan, err := p.planner.Resolve(ctx, rc)
	if before == nil || !slices.ContainsFunc(before.Results, isStatic) {
		return plan, err
	}
	wanted := before
	if err == nil {
		if wanted, err = p.record(plan); err != nil {
			return nil, err
		}
		if replaced := replacedStatic(before, wanted); replaced != nil {
			wanted, err = before, &claim.Refusal{
				Request: replaced.Request, Device: replaced.Device, Transient: true, Fix: claim.StaticFix,
				Cause: fmt.Sprintf("MIG device %s is not advertised now", replaced.MIG.Identity.UUID),
			}
		}
	}
	if missing := p.static.checkLocked(ctx, wanted); missing != nil && (err == nil || errors.Is(missing, gpu.ErrNotFound)) {
		err = missing
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// withheld refuses a plan that uses a GPU while the node's GPUs are withheld. A claim with a record of this very allocation is prepared
// again: its containers may be running, and other components find the GPU in use. Admin access allocates no GPU.
func (p planning) withheld(plan *claim.Plan, e earlier) error {
	i := slices.IndexFunc(plan.Results, func(result claim.Result) bool { return !result.Admin })
	if p.options.Withheld == nil || i < 0 || e.sameAllocation {
		return nil
	}
	err := p.options.Withheld()
	if err == nil {
		return nil
	}
	taken := &plan.Results[i]
	return &claim.Refusal{Request: taken.Request, Device: string(taken.Device.Name()), Cause: err.Error(), Transient: true, Err: err}
}

// unhealthy refuses a plan that uses a GPU with a problem, except for results that tolerate its taint, as diagnostics do. The taint may be
// newer than the allocation, or the scheduler may not know it yet. The refusal is final for this call: a repair takes longer than the retry
// budget, and the kubelet calls again. Claims with a record and admin access pass as with withheld.
func (p planning) unhealthy(plan *claim.Plan, e earlier) error {
	if p.options.Unhealthy == nil || e.sameAllocation {
		return nil
	}
	for i := range plan.Results {
		r := &plan.Results[i]
		id := r.Device.Parent().UUID
		if r.Admin || id == "" {
			continue
		}
		for _, problem := range p.options.Unhealthy(id) {
			if !tolerated(r.Tolerations, problem.Taint) {
				return &claim.Refusal{Request: r.Request, Device: string(r.Device.Name()), Cause: problem.Cause, Fix: problem.Fix, Mendable: true}
			}
		}
	}
	return nil
}

// tolerated reports whether one of the tolerations tolerates a taint, as for the scheduler.
func tolerated(tolerations []resourceapi.DeviceToleration, taint resourceapi.DeviceTaint) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) })
}
