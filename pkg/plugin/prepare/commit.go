package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// commit stores the record in state Done, then writes the spec.
func (e execution) commit(ctx context.Context, r *checkpoint.Record) error {
	spec, err := e.specs.build(r)
	if err != nil && len(r.Steps) == 0 {
		return err // there are no effects and no files yet
	}
	if err == nil {
		err = e.finish(r, spec)
	}
	return e.cleanup.after(ctx, r, err)
}

func (e execution) finish(r *checkpoint.Record, spec *specs.Spec) error {
	r.State = checkpoint.Done
	if err := e.records.Put(r); err != nil {
		return err
	}
	e.guard.Put(r)
	return e.specs.Write(r, spec)
}

// specSource makes the specs of records.
type specSource struct {
	extendedSpecs
	steps Steps
}

// renew writes the spec of an answered claim again if it is missing or differs: CDI directories are emptied by reboots and by people, and
// device numbers change when a driver is loaded. A claim with a spec keeps its answer even while the node could not make that spec, or
// while this version would leave out parts that a newer version put into it.
func (s specSource) renew(r *checkpoint.Record) error {
	spec, err := s.build(r)
	if unknown := s.extensions.unknown(r); unknown != nil {
		err = fmt.Errorf("making the CDI spec of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, unknown)
	}
	for i := range r.Steps {
		if kind := r.Steps[i].Kind; s.steps[kind] == nil {
			err = fmt.Errorf("making the CDI spec of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, unknownStep(r, kind))
		}
	}
	if err != nil {
		if s.Holds(r.Claim.UID, r.CDI.Devices) {
			return nil
		}
		return err
	}
	return s.Write(r, spec)
}

// build makes the spec that the record promises. A device that cannot be prepared becomes a refusal in the claim's terms.
func (s specSource) build(r *checkpoint.Record) (*specs.Spec, error) {
	edits, err := s.edits(r)
	if err != nil {
		return nil, err
	}
	more, err := s.extensions.edits(r)
	var spec *specs.Spec
	if err == nil {
		spec, err = s.Build(cdi.SpecRequest{Record: r, Edits: append(edits, more...), Marks: s.extensions.marks(r), Made: s.extensions.makes(r)})
	}
	if failed, ok := errors.AsType[*cdi.DeviceError](err); ok {
		refusal := &claim.Refusal{Cause: err.Error(), Transient: transient(err), Mendable: !failed.Edit && mendable(err), Err: err}
		if !failed.Edit {
			refusal.Err, refusal.Fix = nil, "check the GPU on the node with nvidia-smi; nvidia-modprobe makes missing device nodes"
		}
		if i := slices.Index(r.CDI.Devices, failed.Device); i >= 0 {
			refusal.Request, refusal.Device = r.Results[i].Request, r.Results[i].Device
		}
		return nil, refusal
	}
	if err != nil {
		return nil, fmt.Errorf("%w; check the NVIDIA driver on the node with nvidia-smi", err)
	}
	return spec, nil
}

// edits are the CDI edits of the record's steps by device, in the order of the steps.
func (s specSource) edits(r *checkpoint.Record) (all []cdi.DeviceEdits, err error) {
	for i := range r.Steps {
		step := &r.Steps[i]
		editor, can := s.steps[step.Kind].(Editor)
		if !can {
			continue
		}
		for _, at := range r.ResultsOf(step) {
			of := *step
			of.CDIDevice, of.ClaimUID = r.CDI.Devices[at], r.Claim.UID
			edits, err := editor.Edits(of)
			if err != nil {
				return nil, refuseStep(r, step, fmt.Errorf("making the CDI edits of %s on GPU %s: %w", step.Kind, step.Target, err))
			}
			all = append(all, cdi.DeviceEdits{Device: of.CDIDevice, Source: "step " + step.Kind, Edits: edits})
		}
	}
	return all, nil
}
