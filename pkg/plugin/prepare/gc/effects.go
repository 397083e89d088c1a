package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// effects collects hardware effects.
type effects struct {
	*Collector
	*outcome
	inUse []string
}

// collect undoes the effects that no record names.
func (e effects) collect(ctx context.Context) {
	found := e.find(ctx, slices.Sorted(maps.Keys(e.options.Finders)))
	if len(found) == 0 {
		return
	}
	records, err := e.owners() // after the effects: each was made after its record
	if err != nil {
		e.fail(fmt.Errorf("finding leaked hardware effects: %w", err))
		return
	}
	kinds := map[gpu.UUID][]string{}
	for _, f := range e.leaked(found, records) {
		kinds[f.Target] = append(kinds[f.Target], f.Kind)
	}
	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		e.clean(ctx, id, slices.Compact(kinds[id]))
	}
}

// clean undoes the leaked effects of these kinds on one GPU under its lock, under which they are searched again.
func (e effects) clean(ctx context.Context, id gpu.UUID, kinds []string) {
	waiting, cancel := context.WithTimeout(ctx, BusyAfter)
	defer cancel()
	unlock, err := e.options.Guard.Lock(waiting, []gpu.UUID{id})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return // the GPU is in use by a call
	}
	if err != nil {
		e.fail(err)
		return
	}
	defer unlock()
	ctx, stop := context.WithTimeout(ctx, undoTime)
	defer stop()
	found := slices.DeleteFunc(e.find(ctx, kinds), func(f checkpoint.Step) bool { return f.Target != id })
	records, err := e.owners()
	if err != nil {
		e.fail(fmt.Errorf("finding leaked hardware effects: %w", err))
		return
	}
	e.undo(ctx, e.leaked(found, records))
}

// undo undoes effects in whichever order succeeds: an effect that others depend on fails until those are gone.
func (e effects) undo(ctx context.Context, leaked []checkpoint.Step) {
	for {
		var left []checkpoint.Step
		var failed []error
		for _, step := range leaked {
			step.Last = true // no record has it
			l := Leak{Kind: LeakedEffect, GPU: step.Target, What: step.Kind}
			if err := e.options.Finders[step.Kind].Undo(ctx, step); err != nil {
				left, failed = append(left, step), append(failed, fmt.Errorf("undoing leaked %s: %w", l, err))
				continue
			}
			e.removed = append(e.removed, l)
		}
		if len(left) == 0 || len(left) == len(leaked) {
			e.failed = append(e.failed, failed...)
			return
		}
		leaked = left
	}
}

// find finds the effects of these kinds.
func (e effects) find(ctx context.Context, kinds []string) (found []checkpoint.Step) {
	for _, kind := range kinds {
		effects, err := e.options.Finders[kind].Find(ctx)
		if err != nil {
			e.fail(fmt.Errorf("finding leaked %s: %w", kind, err))
			continue
		}
		for _, f := range effects {
			f.Kind = kind
			found = append(found, f)
		}
	}
	return found
}

// owners returns all records, or an error if one of them may name effects that this version does not know.
func (e effects) owners() ([]*checkpoint.Record, error) {
	records, err := e.options.Guard.All()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Newer() {
			return nil, fmt.Errorf("a newer version prepared claim %s and alone knows its effects", r.Claim.UID)
		}
	}
	return records, nil
}

// leaked are the effects that no record of this boot names. There are none while a container uses a device of a claim whose record is lost:
// they may be effects of that claim.
func (e effects) leaked(found []checkpoint.Step, records []*checkpoint.Record) []checkpoint.Step {
	lost := slices.ContainsFunc(e.inUse, func(device string) bool {
		return !slices.ContainsFunc(records, func(r *checkpoint.Record) bool { return inUseBy(r.Claim.UID, []string{device}) })
	})
	if lost {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(found), func(f checkpoint.Step) bool {
		return slices.ContainsFunc(records, func(r *checkpoint.Record) bool {
			return r.BootID == e.options.BootID && slices.ContainsFunc(r.Steps, func(step checkpoint.Step) bool {
				return step.Kind == f.Kind && step.Target == f.Target && e.options.Finders[f.Kind].Names(step, f)
			})
		})
	})
}
