package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Claim and GPUs make the process its own Locks.
func (p *process) Claim(ctx context.Context, uid string) (func(), error) {
	return p.take(ctx, "claim "+uid)
}

func (p *process) GPUs(ctx context.Context, uuids []gpu.UUID) (func(), bool, error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(uuids)))
	var held []func()
	release := func() {
		for _, r := range slices.Backward(held) {
			r()
		}
	}
	foreign := false
	for _, id := range sorted {
		r, err := p.take(ctx, string(id))
		if err != nil {
			release()
			return nil, false, err
		}
		held = append(held, r)
		p.world.mu.Lock()
		now := p.world.holder[id]
		last, known := p.seen[id]
		foreign = foreign || !known || last != now
		p.seen[id], p.world.holder[id] = now+1, now+1
		p.world.mu.Unlock()
	}
	return release, foreign, nil
}

func (p *process) take(ctx context.Context, name string) (func(), error) {
	if p.taking != nil {
		p.taking(name)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("waiting for the lock of %s: %w", name, err)
	}
	p.world.mu.Lock()
	lock := p.world.locks[name]
	if lock == nil {
		lock = make(chan struct{}, 1)
		p.world.locks[name] = lock
	}
	p.world.mu.Unlock()
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the lock of %s: %w", name, ctx.Err())
	}
	return func() { <-lock }, nil
}

// records is the world's directory of records.
type records struct{ *world }

func (s records) Put(r *checkpoint.Record) error {
	data, err := checkpoint.Encode(r)
	if err != nil {
		return err
	}
	return s.op(fmt.Sprintf("put %s %s", r.State, r.Claim.UID), func() error { s.records[r.Claim.UID] = data; return nil })
}

func (s records) Load(uid string) (r *checkpoint.Record, err error) {
	err = s.op("load "+uid, func() error { r, err = s.read(uid); return err })
	return r, err
}

// read sets a damaged record aside as the store does.
func (s records) read(uid string) (*checkpoint.Record, error) {
	data, ok := s.records[uid]
	if !ok {
		return nil, gpu.ErrNotFound
	}
	if uid == s.hidden {
		return nil, fmt.Errorf("reading the record of claim %s: %w", uid, errDisk)
	}
	r, err := checkpoint.Decode(data)
	if _, newer := errors.AsType[*checkpoint.NewerError](err); newer {
		return nil, err
	}
	if err == nil && r.Claim.UID != uid {
		err = fmt.Errorf("%w: it is of claim %s", checkpoint.ErrDamaged, r.Claim.UID)
	}
	if err != nil {
		delete(s.records, uid)
		s.aside = append(s.aside, uid)
		return nil, fmt.Errorf("%s was set aside: %w", uid, err)
	}
	return r, nil
}

func (s records) Delete(uid string) error {
	return s.op("delete "+uid, func() error { delete(s.records, uid); delete(s.halves, "record "+uid); return nil })
}

func (s records) All() (all []*checkpoint.Record, damaged []error, err error) {
	err = s.op("all", func() error {
		for _, uid := range slices.Sorted(maps.Keys(s.records)) {
			r, readErr := s.read(uid)
			newer, isNewer := errors.AsType[*checkpoint.NewerError](readErr)
			switch {
			case isNewer:
				all = append(all, newer.Record)
			case errors.Is(readErr, checkpoint.ErrDamaged):
				damaged = append(damaged, readErr)
			case readErr != nil:
				err = fmt.Errorf("%w: %w", checkpoint.ErrUnreadable, readErr)
			default:
				all = append(all, r)
			}
		}
		return err
	})
	return all, damaged, err
}

func (s records) SetAside() ([]string, error) { return s.aside, nil }

func (s records) Unfinished() ([]string, error) { return s.unfinished("record ") }

func (s records) Discard(uid string) error { return s.discard("record " + uid) }

// unfinished lists the UIDs of half-written files whose names contain this text before the UID.
func (w *world) unfinished(what string) (uids []string, err error) {
	err = w.op("list halves of a "+what, func() error {
		for name := range w.halves {
			if uid, is := strings.CutPrefix(name, what); is {
				uids = append(uids, uid)
			}
		}
		slices.Sort(uids)
		return nil
	})
	return uids, err
}

func (w *world) discard(name string) error {
	return w.op("discard "+name, func() error { delete(w.halves, name); return nil })
}

// specFiles is the world's CDI directory.
type specFiles struct{ *world }

func (s specFiles) Build(request cdi.SpecRequest) (spec *specs.Spec, err error) {
	r := request.Record
	err = s.op("build "+r.Claim.UID, func() error {
		if s.noSpecs != nil {
			return s.noSpecs
		}
		spec = &specs.Spec{Kind: r.CDI.Kind}
		for i, name := range r.CDI.Devices {
			id := r.Results[i].GPUUUID
			if err := s.missing[id]; err != nil {
				return &cdi.DeviceError{Device: name, Err: err}
			}
			spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{
				DeviceNodes: []*specs.DeviceNode{{Path: "/dev/" + string(id), Major: s.major}},
			}})
		}
		return nil
	})
	return spec, err
}

func (s specFiles) Write(r *checkpoint.Record, spec *specs.Spec) error {
	uid := r.Claim.UID
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := s.specs[uid] == string(data)
	s.mu.Unlock()
	if same {
		return nil
	}
	return s.op("write "+uid, func() error { s.specs[uid] = string(data); return nil })
}

func (s specFiles) Holds(uid string, devices []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spec specs.Spec
	if json.Unmarshal([]byte(s.specs[uid]), &spec) != nil {
		return false
	}
	var names []string
	for _, d := range spec.Devices {
		names = append(names, d.Name)
	}
	return slices.Equal(names, devices)
}

func (s specFiles) Claims() (uids []string, err error) {
	err = s.op("list specs", func() error { uids = slices.Sorted(maps.Keys(s.specs)); return nil })
	return uids, err
}

func (s specFiles) Unfinished() ([]string, error) { return s.unfinished("spec ") }

func (s specFiles) Discard(uid string) error { return s.discard("spec " + uid) }

func (s specFiles) Remove(uid string) error {
	return s.op("remove "+uid, func() error { delete(s.specs, uid); delete(s.halves, "spec "+uid); return nil })
}

// planner plans against the world's node, and adds the world's effects to every GPU that is owned.
type planner struct {
	*world
	claim.Source
}

func (w *world) source() claim.Source {
	return claim.Source{Driver: driverName, NodeName: nodeName, Additional: gpu.Additional{Monitor: true, Perfmon: true}, Families: w.families, Advertised: func() (*gpu.Node, gpu.Layout, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.node, w.layout, nil
	}}
}

func (p planner) Resolve(_ context.Context, rc *resourceapi.ResourceClaim) (*claim.Plan, error) {
	plan, err := p.Source.Resolve(rc)
	if err != nil {
		return nil, err
	}
	for i := range plan.Results {
		for _, kind := range p.steps {
			if !plan.Results[i].Admin {
				plan.Steps = append(plan.Steps, claim.Step{
					Kind: kind, Target: plan.Results[i].Device.Parent().UUID, Args: json.RawMessage(`{"for":"` + plan.UID + `"}`),
				})
			}
		}
	}
	if p.extend != nil {
		p.extend(plan)
	}
	return plan, nil
}

// unlessEnded is an effect that a context which has ended keeps from being made: as all that is asked of hardware, a fake honours it.
func unlessEnded(ctx context.Context, effect func() error) func() error {
	return func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return effect()
	}
}

// effect is a setting of a GPU: it names the claim it was made for, and refuses to be made over another's.
type effect struct{ *world }

func (e effect) Do(ctx context.Context, s checkpoint.Step) (made json.RawMessage, err error) {
	err = e.op(fmt.Sprintf("do %s %s", s.Kind, s.Target), unlessEnded(ctx, func() error {
		set := e.effects[s.Target]
		if set == nil {
			set = map[string]string{}
			e.effects[s.Target] = set
		}
		if now, taken := set[s.Kind]; taken && now != string(s.Args) {
			return fmt.Errorf("%s is set %s: %w", s.Kind, now, gpu.ErrInUse)
		}
		set[s.Kind] = string(s.Args)
		made = s.Args
		return nil
	}))
	return made, err
}

func (e effect) Undo(ctx context.Context, s checkpoint.Step) error {
	return e.op(fmt.Sprintf("undo %s %s", s.Kind, s.Target), unlessEnded(ctx, func() error {
		if now, taken := e.effects[s.Target][s.Kind]; taken && now != string(s.Args) {
			return fmt.Errorf("undoing what is not ours: %s", now) // an undo that comes late must find nothing of it
		}
		delete(e.effects[s.Target], s.Kind)
		return nil
	}))
}
