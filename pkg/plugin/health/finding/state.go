package finding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	// cleanPolls is the number of polls in a row without a problem after which its finding ends.
	cleanPolls = 3
	// returnsMax is the number of returns within an hour by which a finding stays.
	returnsMax = 3
	// hour is the time in which returns are counted, and in which a code is reported as unknown once.
	hour = time.Hour
)

// State holds the findings of a node's GPUs. It uses no clock: times are passed in. It is not safe for concurrent use.
type State struct {
	rules   Rules
	entries map[place]*entry
	past    map[place]past
	// decides are the GPUs whose driver has reported a recovery action, also "none".
	decides map[gpu.UUID]bool
	// unknown is when a code was last reported as unknown.
	unknown map[uint64]time.Time
	// healed is the time of the last command that has healed a GPU.
	healed map[gpu.UUID]time.Time
	// declared are the keys of which Declare has named all findings.
	declared map[Key]bool
}

// place identifies a finding. Value is empty for keys of which a GPU has one finding at a time, whose value may change.
type place struct {
	gpu   gpu.UUID
	key   Key
	value string
}

// entry is a finding that is there.
type entry struct {
	Finding
	// clean counts the polls in a row that did not show it; 0 if the last reading shows it.
	clean int
	// shown: the last reading that says something about its key shows it.
	shown bool
}

// past is what happened to a finding before.
type past struct {
	ended   time.Time
	returns []time.Time
}

// NewState returns a state without findings.
func NewState(rules Rules) *State {
	s := &State{rules: rules, unknown: map[uint64]time.Time{}, declared: map[Key]bool{}}
	s.clear()
	return s
}

func (s *State) clear() {
	s.entries, s.past = map[place]*entry{}, map[place]past{}
	s.decides, s.healed = map[gpu.UUID]bool{}, map[gpu.UUID]time.Time{}
}

// Observe applies a reading, and reports whether a finding began, changed or ended. Only counted readings, of the regular polls, end findings:
// the polls after an event follow each other too quickly.
func (s *State) Observe(reading *gpu.HealthReading, at time.Time, counted bool) (changed bool) {
	if reading.UUID == "" {
		return false
	}
	if reading.Action != nil {
		s.decides[reading.UUID] = true
	}
	o := s.rules.observe(reading)
	shown := map[place]bool{}
	for _, f := range o.found {
		shown[placeOf(&f)] = true
		changed = s.begin(f, at) || changed
	}
	for where, e := range s.entries {
		if where.gpu != reading.UUID || !o.keys[where.key] || shown[where] {
			continue
		}
		e.shown = false
		if !counted {
			continue
		}
		if e.clean++; e.clean >= cleanPolls && !e.Flapping {
			delete(s.entries, where)
			p := s.past[where]
			p.ended = at.UTC()
			s.past[where], changed = p, true
		}
	}
	return changed
}

// XID applies an error that the driver has reported as an event: changed as of Observe. Unknown: the code is in no table, and this was not
// reported within the last hour.
func (s *State) XID(id gpu.UUID, code uint64, at time.Time) (changed, isUnknown bool) {
	if code == 0 {
		return false, false
	}
	switch s.rules.XIDs.decide(code, s.decides[id]) {
	case tainting:
		return id != "" && s.begin(Finding{GPU: id, Key: XID, Value: strconv.FormatUint(code, 10), Effect: s.rules.effect(XID)}, at), false
	case unknown:
		last, reported := s.unknown[code]
		if reported && at.Sub(last) < hour {
			return false, false
		}
		maps.DeleteFunc(s.unknown, func(_ uint64, last time.Time) bool { return at.Sub(last) >= hour })
		s.unknown[code] = at
		return false, true
	default:
		return false, false
	}
}

// Declare replaces all findings of Maintenance or NodeCondition: the values of each GPU, and their notes. Changed as of Observe.
func (s *State) Declare(key Key, of map[gpu.UUID]map[string]string, at time.Time) (changed bool) {
	s.declared[key] = true
	for where := range s.entries {
		if _, there := of[where.gpu][where.value]; where.key == key && !there {
			delete(s.entries, where)
			changed = true
		}
	}
	for id, values := range of {
		for value, note := range values {
			changed = s.begin(Finding{GPU: id, Key: key, Value: value, Note: note, Effect: s.rules.effect(key)}, at) || changed
		}
	}
	return changed
}

// begin adds a finding, or changes the one that is there, and reports whether something changed.
func (s *State) begin(f Finding, at time.Time) bool {
	where := placeOf(&f)
	f.Begin = at.UTC().Truncate(time.Second)
	before, there := s.entries[where]
	if there {
		before.clean, before.shown = 0, true
		f.Flapping = before.Flapping
		// A GPU that is off the bus may do both in turn, and each change is written to its ResourceSlice, pods and claims.
		if f.Key == GPULost && before.Value == Lost && f.Value == Hung {
			f.Value = Lost
		}
		if before.Effect == f.Effect {
			f.Begin = before.Begin
		}
		changed := before.Finding != f
		before.Finding = f
		return changed
	}
	if f.Blocks() {
		f.Flapping = s.returned(where, at)
	}
	s.entries[where] = &entry{Finding: f, shown: true}
	return true
}

// returned notes the return of a finding that has ended before, and reports whether it has returned too often.
func (s *State) returned(where place, at time.Time) bool {
	p, known := s.past[where]
	if !known || at.Sub(p.ended) > hour {
		return false
	}
	p.returns = append(slices.DeleteFunc(slices.Clone(p.returns), func(before time.Time) bool { return at.Sub(before) > hour }), at.UTC())
	s.past[where] = p
	return len(p.returns) >= returnsMax
}

// Heal ends the findings of a GPU that only an administrator can end, if they began before that time: XID, and findings that stay because
// they returned too often. The error says why nothing can be ended. A command that was carried out is not refused later.
func (s *State) Heal(id gpu.UUID, before time.Time) (changed bool, err error) {
	done, ever := s.healed[id]
	repeated := ever && before.Equal(done)
	var refused []error
	for where, e := range s.entries {
		if where.gpu != id || !e.Unhealthy() {
			continue
		}
		if why := e.unhealable(before); why != nil {
			refused = append(refused, why)
			continue
		}
		delete(s.entries, where)
		changed = true
	}
	if repeated {
		return changed, nil // another process may have stored a finding before it followed the command
	}
	if !changed && len(refused) > 0 {
		slices.SortFunc(refused, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		return false, refused[0]
	}
	maps.DeleteFunc(s.past, func(where place, _ past) bool { return where.gpu == id })
	if before.After(done) {
		s.healed[id] = before.UTC()
	}
	return changed, nil
}

// unhealable returns why a command of that time does not end a finding.
func (e *entry) unhealable(before time.Time) error {
	switch {
	case e.Key != XID && !e.Flapping:
		return fmt.Errorf("%s ends when its cause is repaired: %s", e.name(), Message(&e.Finding))
	case !e.Begin.Before(before):
		return fmt.Errorf("%s began after the time of the command", e.name())
	case e.Key != XID && e.shown:
		return fmt.Errorf("%s is still there: %s", e.name(), Message(&e.Finding))
	default:
		return nil
	}
}

func (e *entry) name() string {
	if e.Value == "" {
		return string(e.Key)
	}
	return string(e.Key) + "=" + e.Value
}

// DriverLoaded ends all findings but the declared ones: the driver was loaded again.
func (s *State) DriverLoaded() {
	declared := maps.Clone(s.entries)
	maps.DeleteFunc(declared, func(where place, _ *entry) bool { return !isDeclared(where.key) })
	s.clear()
	s.entries = declared
}

// isDeclared reports whether an administrator or another component names the findings of a key, which no poll shows.
func isDeclared(key Key) bool { return key == Maintenance || key == NodeCondition }

// All lists the findings in a fixed order.
func (s *State) All() []Finding {
	all := make([]Finding, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e.Finding)
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	return all
}

// OneValue reports whether a GPU has at most one finding of a key at a time, whose value may change.
func OneValue(key Key) bool { return key != XID && key != Memory && key != NodeCondition }

func placeOf(f *Finding) place {
	if OneValue(f.Key) {
		return place{f.GPU, f.Key, ""}
	}
	return place{f.GPU, f.Key, f.Value}
}
