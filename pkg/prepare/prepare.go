package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Prepare makes the claim's devices usable and returns its record, which is the answer. Repeating it gives the same answer.
// Causes that may go away by themselves are retried within Patience and the caller's deadline. An error leaves nothing
// behind but, at worst, a debt.
func (t *Transaction) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	unlock, err := t.Locks.Claim(ctx, string(rc.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	var r *checkpoint.Record
	waiting := func(cause error) {
		if t.settings.Retrying != nil {
			t.settings.Retrying(rc, cause)
		}
	}
	err = patiently(ctx, waiting, func() error {
		r, err = t.once(ctx, rc)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// once answers from the record, or clears what an earlier try left and carries out a new plan. The claim's lock is held.
func (t *Transaction) once(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	r, err := t.load(string(rc.UID))
	if errors.Is(err, checkpoint.ErrDamaged) {
		t.holders.remove(string(rc.UID))
		return nil, Redact("the record of the claim was damaged and is set aside; the next try prepares the claim anew", err) // it may name another
	}
	if err != nil {
		return nil, err
	}
	answered := r != nil && r.State == checkpoint.Done
	same := answered && slices.Equal(allocationKeys(r), t.Planner.AllocationKeys(rc))
	if same && r.BootID == t.settings.BootID {
		if same, err = t.present(ctx, r); err != nil {
			return nil, err
		}
		if same {
			return r, t.verify(r)
		}
	}
	return t.anew(ctx, rc, r, answered && !same)
}

// anew clears what there is of an earlier plan and carries out a new one. An answer that does not fit any more is kept until
// there is a plan.
func (t *Transaction) anew(ctx context.Context, rc *resourceapi.ResourceClaim, r *checkpoint.Record, unfit bool) (*checkpoint.Record, error) {
	if r != nil && r.State != checkpoint.Done {
		if err := t.release(ctx, r); err != nil {
			return nil, fmt.Errorf("undoing an earlier try: %w", err)
		}
		r = nil
	}
	plan, err := t.plan(ctx, rc, r)
	if err != nil {
		return nil, err
	}
	if err := t.withheld(rc, r, plan); err != nil {
		return nil, err
	}
	if unfit {
		if err := t.release(ctx, r); err != nil {
			return nil, fmt.Errorf("undoing what was prepared and does not fit any more: %w", err)
		}
	}
	return t.attempt(ctx, plan)
}

// load returns the claim's record, nil when there is none.
func (t *Transaction) load(uid string) (*checkpoint.Record, error) {
	r, err := t.Records.Load(uid)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
		return nil, nil
	case errors.Is(err, checkpoint.ErrDamaged):
		t.report(err)
	}
	return r, err
}

// verify makes sure that an answered claim has its spec, and that device numbers in it are what they are now: CDI
// directories are swept by reboots and by people, and numbers change when a driver is loaded. A claim that has its spec
// keeps its answer also while the node could not make that spec, or this version would leave out what a newer one put into it.
func (t *Transaction) verify(r *checkpoint.Record) error {
	spec, err := t.spec(r)
	for i := range r.Steps {
		if kind := r.Steps[i].Kind; t.Steps[kind] == nil {
			err = fmt.Errorf("making the CDI spec of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, unknownStep(r, kind))
		}
	}
	if err != nil {
		if t.Specs.Holds(r.Claim.UID, r.CDI.Devices) {
			return nil
		}
		return err
	}
	return t.Specs.Write(r.Claim.UID, spec)
}

// attempt carries a plan out, once.
func (t *Transaction) attempt(ctx context.Context, plan *claim.Plan) (*checkpoint.Record, error) {
	r := t.record(plan)
	if len(r.Results) == 0 {
		return r, nil
	}
	unlock, err := t.hold(ctx, r)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := t.ready(ctx, r, plan.Needs); err != nil {
		return nil, err
	}
	if err := t.carryOut(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// hold takes the GPUs' locks, pays debts on the GPUs, and makes sure that nobody else owns them.
func (t *Transaction) hold(ctx context.Context, r *checkpoint.Record) (unlock func(), err error) {
	uuids := touched(r)
	for {
		unlock, err := t.lock(ctx, uuids)
		if err != nil {
			return nil, err
		}
		debtors := t.holders.debtors(r)
		if len(debtors) == 0 {
			if err := t.conflict(r); err != nil {
				unlock()
				return nil, err
			}
			return unlock, nil
		}
		// A debt may be on more GPUs than these, and GPUs are locked all at once or not at all.
		unlock()
		for _, d := range debtors {
			if err := t.pay(ctx, d.claim); err != nil {
				return nil, &heldError{other: d.claim, cause: err, refusal: refuse(r, d.gpu, &claim.Refusal{
					Cause:     fmt.Sprintf("cleanup of GPU %s after an earlier claim is still pending", d.gpu),
					Fix:       "the log of the kubelet plugin on the node says why; check the GPU there with nvidia-smi, and reset it if this stays",
					Transient: true,
				})}
			}
		}
	}
}

// lock takes the GPUs' locks and learns who holds the GPUs where another process may have changed that.
func (t *Transaction) lock(ctx context.Context, uuids []gpu.UUID) (unlock func(), err error) {
	unlock, foreign, err := t.Locks.GPUs(ctx, uuids)
	if err != nil {
		return nil, err
	}
	if foreign {
		t.holders.distrust(uuids)
	}
	if t.holders.trusted(uuids) {
		return unlock, nil
	}
	records, damaged, err := t.Records.All()
	if err != nil {
		unlock()
		return nil, Redact("which claims hold the GPU cannot be read now; the log of the kubelet plugin on the node says why", err)
	}
	t.report(damaged...)
	t.holders.relearn(uuids, records)
	return unlock, nil
}

// conflict refuses a GPU that another claim owns.
func (t *Transaction) conflict(r *checkpoint.Record) error {
	other, id, freed := t.holders.conflict(r)
	if freed == nil {
		return nil
	}
	what := ""
	if holdings(r)[id].part() {
		what = "required MIG placement on "
	}
	return &heldError{other: other, freed: freed, refusal: refuse(r, id, &claim.Refusal{
		Cause: fmt.Sprintf("%sGPU %s is still held by another claim", what, id),
		Fix: "if the pod of that claim was deleted by force, its containers may still be exiting; the log of the kubelet plugin on the node " +
			"names the claim",
		Transient: true,
	})}
}

// refuse says which of the record's results a refusal is about: the first one that is on that GPU.
func refuse(r *checkpoint.Record, id gpu.UUID, refusal *claim.Refusal) *claim.Refusal {
	i := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool { return result.GPUUUID == id })
	if i >= 0 {
		refusal.Request, refusal.Device = r.Results[i].Request, r.Results[i].Device
	}
	return refusal
}

// touched lists the GPUs that the record owns or changes, each once: those whose locks work on it needs. Who only looks at a GPU
// waits for nobody.
func touched(r *checkpoint.Record) []gpu.UUID {
	uuids := owned(r)
	for i := range r.Steps {
		uuids = append(uuids, r.Steps[i].Target)
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
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

// allocationKeys are the record's results as the claim's allocation names them.
func allocationKeys(r *checkpoint.Record) []claim.AllocationKey {
	keys := make([]claim.AllocationKey, 0, len(r.Results))
	for i := range r.Results {
		p := &r.Results[i]
		keys = append(keys, claim.AllocationKey{
			Request: p.Request, Pool: p.Pool, Device: p.Device, ShareID: p.ShareID, Admin: p.Admin,
		})
	}
	return keys
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
		result := checkpoint.Result{
			Request: p.Request, Pool: p.Pool, Device: string(p.Device.Name()), ShareID: p.ShareID, Admin: p.Admin,
			Type: p.Device.Type(), GPUUUID: parent.UUID, PCIBusID: parent.PCI.BusID, Consumed: p.Consumed, MIG: slice(p.Device), Share: share(p),
		}
		r.Results = append(r.Results, result)
		r.CDI.Devices = append(r.CDI.Devices, deviceName(plan.UID, &result))
	}
	for _, s := range plan.Steps {
		r.Steps = append(r.Steps, checkpoint.Step{Kind: s.Kind, Target: s.Target, Device: string(s.Device), Args: s.Args})
	}
	return r
}

// slice says which MIG device a device is; nil for one that is none.
func slice(d gpu.Device) *checkpoint.MIG {
	device, ok := d.(gpu.MIGDevice)
	if !ok {
		return nil
	}
	m := &checkpoint.MIG{Profile: device.Profile.ID, Name: device.Profile.Name, Placement: device.Placement}
	if device.Static != nil {
		m.Static, m.Identity = true, *device.Static
	}
	return m
}

// share says of which shares a result is one; nil for a device that it has alone, or only looks at.
func share(r *claim.Result) *checkpoint.Share {
	if r.Admin {
		return nil
	}
	switch device := r.Device.(type) {
	case gpu.TimeSliced:
		return &checkpoint.Share{Replicas: device.Replicas, Name: device.ShareName}
	case gpu.MIGDevice:
		if device.Replicas > 1 {
			return &checkpoint.Share{Replicas: device.Replicas}
		}
	case gpu.Whole, gpu.Monitor:
	}
	return nil
}

// deviceName names a result in the spec. The UUID in it is that of what programs see; of a MIG device that is not made yet, its
// GPU's.
func deviceName(claimUID string, r *checkpoint.Result) string {
	uuid := string(r.GPUUUID)
	if r.MIG != nil && r.MIG.Identity.UUID != "" {
		uuid = string(r.MIG.Identity.UUID)
	}
	return cdi.DeviceName(claimUID, gpu.DeviceName(r.Device), r.ShareID, r.Admin, uuid)
}
