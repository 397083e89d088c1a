package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// The waits between the tries of one call.
const (
	firstWait = 250 * time.Millisecond
	longWait  = 2 * time.Second
	// margin is what is left of the caller's deadline for the answer itself.
	margin = 3 * time.Second
)

// Prepare makes the claim's devices usable and returns its record, which is the answer. Repeating it gives the same answer.
// Causes that may go away by themselves are retried within the caller's deadline. An error leaves nothing behind but, at
// worst, a debt.
func (t *Transaction) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	uid := string(rc.UID)
	release, err := t.Locks.Claim(ctx, uid)
	if err != nil {
		return nil, err
	}
	defer release()

	r, err := t.Records.Load(uid)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
	case errors.Is(err, checkpoint.ErrDamaged):
		t.holders.remove(uid)
		return nil, fmt.Errorf("%w; the next try prepares the claim anew", err)
	case err != nil:
		return nil, err
	case r.State == checkpoint.Done && r.BootID == t.settings.BootID:
		return t.repeat(r)
	case r.State != checkpoint.Done:
		if err := t.release(ctx, r); err != nil {
			return nil, fmt.Errorf("undoing an earlier try: %w", err)
		}
	}
	return t.persist(ctx, rc)
}

// repeat answers a claim that was answered before. Its spec is made again when it is not there: CDI directories are swept by
// reboots and by people.
func (t *Transaction) repeat(r *checkpoint.Record) (*checkpoint.Record, error) {
	if len(r.Results) == 0 || t.Specs.Holds(r.Claim.UID, r.CDI.Devices) {
		return r, nil
	}
	spec, err := t.spec(r)
	if err != nil {
		return nil, err
	}
	return r, t.Specs.Write(r.Claim.UID, spec)
}

// persist tries until it succeeds, the cause will not go away, or time is up.
func (t *Transaction) persist(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	limit := t.settings.Now().Add(t.settings.Patience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-margin).Before(limit) {
		limit = deadline.Add(-margin)
	}
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		changed := t.holders.changed()
		r, err := t.attempt(ctx, rc)
		if err == nil || !transient(err) || t.settings.Now().Add(wait).After(limit) {
			return r, err
		}
		if wait == firstWait && t.settings.Retrying != nil {
			t.settings.Retrying(rc, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// transient tells whether a retry may help.
func transient(err error) bool {
	if refusal, ok := errors.AsType[*claim.Refusal](err); ok {
		return refusal.Transient
	}
	for _, cause := range []error{gpu.ErrInUse, gpu.ErrNotFound, gpu.ErrTimeout, gpu.ErrDriverNotLoaded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// attempt plans the claim and carries the plan out, once.
func (t *Transaction) attempt(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	plan, err := t.Planner.Resolve(rc)
	if err != nil {
		return nil, err
	}
	r := t.record(plan)
	if len(r.Results) == 0 {
		return r, nil
	}
	release, err := t.hold(ctx, r)
	if err != nil {
		return nil, err
	}
	defer release()
	if len(r.Steps) == 0 {
		err = t.finish(r)
	} else {
		err = t.effects(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// hold takes the GPUs' locks and makes sure that nobody else owns the GPUs.
func (t *Transaction) hold(ctx context.Context, r *checkpoint.Record) (release func(), err error) {
	uuids := r.GPUs()
	for _, debtor := range t.holders.debtors(r.Claim.UID, uuids) {
		if err := t.pay(ctx, debtor); err != nil {
			return nil, err
		}
	}
	release, foreign, err := t.Locks.GPUs(ctx, uuids)
	if err != nil {
		return nil, err
	}
	if foreign {
		records, _, err := t.Records.All()
		if err != nil {
			release()
			return nil, err
		}
		t.holders.relearn(uuids, records)
	}
	if other, id, taken := t.holders.conflict(r.Claim.UID, owned(r)); taken {
		release()
		return nil, &claim.Refusal{
			Cause: fmt.Sprintf("GPU %s is still held by claim %s/%s (UID %s)", id, other.Namespace, other.Name, other.UID),
			Fix:   "if that pod was deleted by force, its containers may still be ending", Transient: true,
		}
	}
	return release, nil
}

// owned lists the GPUs that the record does not merely look at.
func owned(r *checkpoint.Record) []gpu.UUID {
	var uuids []gpu.UUID
	for i := range r.Results {
		if !r.Results[i].Admin {
			uuids = append(uuids, r.Results[i].GPUUUID)
		}
	}
	return uuids
}

// finish makes the answer: spec built and verified, done record durable, spec written.
func (t *Transaction) finish(r *checkpoint.Record) error {
	spec, err := t.spec(r)
	if err != nil {
		return err
	}
	r.State = checkpoint.Done
	if err := t.Records.Put(r); err != nil {
		// A failed directory sync leaves the record in place without the promise that it stays.
		return errors.Join(err, t.discard(r))
	}
	t.holders.put(r)
	if err := t.Specs.Write(r.Claim.UID, spec); err != nil {
		if len(r.Steps) > 0 {
			return err // the caller undoes the effects first
		}
		return errors.Join(err, t.discard(r))
	}
	return nil
}

// spec builds the spec that the record promises. A device that cannot be given becomes a refusal in the claim's terms.
func (t *Transaction) spec(r *checkpoint.Record) (*specs.Spec, error) {
	o := cdi.Order{ClaimUID: r.Claim.UID, Kind: r.CDI.Kind}
	for i := range r.Results {
		o.Devices = append(o.Devices, cdi.Ordered{Name: r.CDI.Devices[i], GPU: r.Results[i].GPUUUID, Type: r.Results[i].Type})
	}
	spec, err := t.Specs.Build(o)
	if missing, ok := errors.AsType[*cdi.DeviceError](err); ok {
		i := slices.Index(r.CDI.Devices, missing.Device)
		return nil, &claim.Refusal{
			Request: r.Results[i].Request, Device: r.Results[i].Device, Cause: err.Error(), Transient: transient(err),
			Fix: "check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes",
		}
	}
	return spec, err
}

// discard forgets a claim that has no effects.
func (t *Transaction) discard(r *checkpoint.Record) error {
	if len(r.Steps) > 0 {
		return nil
	}
	err := errors.Join(t.Specs.Remove(r.Claim.UID), t.Records.Delete(r.Claim.UID))
	t.holders.remove(r.Claim.UID)
	return err
}

// record turns a plan into the record that promises it.
func (t *Transaction) record(plan *claim.Plan) *checkpoint.Record {
	r := &checkpoint.Record{
		Claim:  checkpoint.Claim{UID: plan.UID, Namespace: plan.Namespace, Name: plan.Name},
		BootID: t.settings.BootID, Writer: t.settings.Writer, State: checkpoint.Intent,
		CDI: checkpoint.CDI{Kind: t.settings.CDIKind},
	}
	for i := range plan.Results {
		p := &plan.Results[i]
		parent := p.Device.Parent()
		r.Results = append(r.Results, checkpoint.Result{
			Request: p.Request, Pool: p.Pool, Device: string(p.Device.Name()), ShareID: p.ShareID, Admin: p.Admin,
			Type: p.Device.Type(), GPUUUID: parent.UUID, PCIBusID: parent.PCI.BusID, Consumed: p.Consumed,
		})
		r.CDI.Devices = append(r.CDI.Devices, cdi.DeviceName(plan.UID, p.Device.Name(), p.ShareID, p.Admin, parent.UUID))
	}
	for _, s := range plan.Steps {
		r.Steps = append(r.Steps, checkpoint.Step{Kind: s.Kind, Target: s.Target, Args: s.Args})
	}
	return r
}
