package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// preflight ensures preconditions and checks steps before the record is stored. It is never undone.
type preflight struct {
	static        staticMIG
	preconditions map[string]Precondition
	steps         Steps
}

// check ensures the preconditions of the record's GPUs, and checks that the steps can make their effects. The GPUs' locks are held.
func (p preflight) check(ctx context.Context, r *checkpoint.Record, preconditions []claim.Precondition) error {
	if err := p.static.check(ctx, r); err != nil {
		return err
	}
	if err := p.precheck(ctx, r); err != nil {
		return err
	}
	for _, n := range preconditions {
		precondition, known := p.preconditions[n.Kind]
		if !known {
			return fmt.Errorf("preparing GPU %s: %w", n.Target, &gpu.UnsupportedError{Feature: "precondition " + n.Kind})
		}
		if err := precondition.Ensure(ctx, n); err != nil {
			return refuse(r, n.Target, asRefusal(err))
		}
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		checker, ok := p.steps[s.Kind].(Checker)
		if !ok {
			continue
		}
		if err := checker.Check(ctx, *s); err != nil {
			return refuseStep(r, s, err)
		}
	}
	return nil
}

// precheck makes the checks that need no GPU: a claim that it refuses changes no MIG mode.
func (p preflight) precheck(ctx context.Context, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		checker, ok := p.steps[s.Kind].(Prechecker)
		if !ok {
			continue
		}
		if err := checker.Precheck(ctx, *s); err != nil {
			return refuseStep(r, s, err)
		}
	}
	return nil
}

// asRefusal is a precondition's own refusal, or one with the text of the error.
func asRefusal(err error) *claim.Refusal {
	if refusal, ok := errors.AsType[*claim.Refusal](err); ok {
		return refusal
	}
	return &claim.Refusal{Cause: err.Error(), Transient: transient(err), Mendable: mendable(err), Err: err}
}

// refuse names the record's result that a refusal is about: the first one that uses that GPU.
func refuse(r *checkpoint.Record, id gpu.UUID, refusal *claim.Refusal) *claim.Refusal {
	return about(r, refusal, func(result *checkpoint.Result) bool { return result.GPUUUID == id && result.Type.UsesGPU() })
}

// refuseUse names the record's result that uses a GPU in this way.
func refuseUse(r *checkpoint.Record, id gpu.UUID, use gpu.Use, refusal *claim.Refusal) *claim.Refusal {
	return about(r, refusal, func(result *checkpoint.Result) bool { return result.GPUUUID == id && result.Use() == use })
}

// about names the first result that is meant.
func about(r *checkpoint.Record, refusal *claim.Refusal, meant func(result *checkpoint.Result) bool) *claim.Refusal {
	i := slices.IndexFunc(r.Results, func(result checkpoint.Result) bool { return meant(&result) })
	if i >= 0 {
		refusal.Request, refusal.Device = r.Results[i].Request, r.Results[i].Device
	}
	return refusal
}

// refuseStep names the record's result that cannot be prepared, if the step belongs to one.
func refuseStep(r *checkpoint.Record, s *checkpoint.Step, err error) error {
	if s.Device == "" {
		return err
	}
	refusal := &claim.Refusal{Device: s.Device, Cause: err.Error(), Transient: transient(err), Mendable: mendable(err), Err: err}
	if i := r.ResultOf(s); i >= 0 {
		refusal.Request = r.Results[i].Request
	}
	return refusal
}
