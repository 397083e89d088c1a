package prepare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// Finder is a Step that can look for its effects. An effect loses its record when that is damaged and set aside.
type Finder interface {
	Step
	// Find returns the effects of this kind that are on the node now and are certainly ours, each with its GPU as Target and
	// with what Undo needs.
	Find(ctx context.Context) ([]checkpoint.Step, error)
	// Names tells whether a record's step of this kind and GPU, done or only intended, may stand for the effect that was found.
	Names(recorded, found checkpoint.Step) bool
}

// effects undoes the effects that no record names.
func (s *sweep) effects(ctx context.Context) {
	found := s.find(ctx, slices.Sorted(maps.Keys(s.tx.Steps)))
	if len(found) == 0 {
		return
	}
	records, err := s.owners() // after the effects: each was made after its record
	if err != nil {
		s.fail(fmt.Errorf("looking for hardware effects that nobody owns: %w", err))
		return
	}
	kinds := map[gpu.UUID][]string{}
	for _, f := range s.strays(found, records) {
		kinds[f.Target] = append(kinds[f.Target], f.Kind)
	}
	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		s.strip(ctx, id, slices.Compact(kinds[id]))
	}
}

// strip undoes the strays of these kinds on one GPU under its lock, where they are looked for again.
func (s *sweep) strip(ctx context.Context, id gpu.UUID, kinds []string) {
	waiting, cancel := context.WithTimeout(ctx, busyAfter)
	defer cancel()
	unlock, err := s.tx.lock(waiting, []gpu.UUID{id})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return // somebody works on that GPU
	}
	if err != nil {
		s.fail(err)
		return
	}
	defer unlock()
	ctx, stop := context.WithTimeout(ctx, undoTime)
	defer stop()
	found := slices.DeleteFunc(s.find(ctx, kinds), func(f checkpoint.Step) bool { return f.Target != id })
	records, err := s.owners()
	if err != nil {
		s.fail(fmt.Errorf("looking for hardware effects that nobody owns: %w", err))
		return
	}
	s.undoAll(ctx, s.strays(found, records))
}

// undoAll undoes effects whose order nobody remembers: what others stand on comes when those are gone.
func (s *sweep) undoAll(ctx context.Context, strays []checkpoint.Step) {
	for {
		var left []checkpoint.Step
		var failed []error
		for _, stray := range strays {
			o := Orphan{Kind: OrphanEffect, GPU: stray.Target, What: stray.Kind}
			if err := s.tx.Steps[stray.Kind].Undo(ctx, stray); err != nil {
				left, failed = append(left, stray), append(failed, fmt.Errorf("undoing what nobody owns, %s: %w", o, err))
				continue
			}
			s.removed = append(s.removed, o)
		}
		if len(left) == 0 || len(left) == len(strays) {
			s.failed = append(s.failed, failed...)
			return
		}
		strays = left
	}
}

// find asks those of the kinds that can look.
func (s *sweep) find(ctx context.Context, kinds []string) (found []checkpoint.Step) {
	for _, kind := range kinds {
		finder, can := s.tx.Steps[kind].(Finder)
		if !can {
			continue
		}
		effects, err := finder.Find(ctx)
		if err != nil {
			s.fail(fmt.Errorf("looking for %s that nobody owns: %w", kind, err))
			continue
		}
		for _, f := range effects {
			f.Kind = kind
			found = append(found, f)
		}
	}
	return found
}

// owners returns all records, or an error where one of them may own effects that this version cannot tell.
func (s *sweep) owners() ([]*checkpoint.Record, error) {
	records, err := s.tx.Kept()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if r.Newer() {
			return nil, fmt.Errorf("a newer version prepared claim %s/%s and knows what it owns", r.Claim.Namespace, r.Claim.Name)
		}
	}
	return records, nil
}

// strays are the effects that no record of this boot names. There are none while a container has a device of a claim whose
// record is lost: they may be its.
func (s *sweep) strays(found []checkpoint.Step, records []*checkpoint.Record) []checkpoint.Step {
	lost := slices.ContainsFunc(s.inUse, func(device string) bool {
		return !slices.ContainsFunc(records, func(r *checkpoint.Record) bool { return given(r.Claim.UID, []string{device}) })
	})
	if lost {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(found), func(f checkpoint.Step) bool {
		finder, _ := s.tx.Steps[f.Kind].(Finder)
		return slices.ContainsFunc(records, func(r *checkpoint.Record) bool {
			return r.BootID == s.tx.settings.BootID && slices.ContainsFunc(r.Steps, func(step checkpoint.Step) bool {
				return step.Kind == f.Kind && step.Target == f.Target && finder.Names(step, f)
			})
		})
	})
}
