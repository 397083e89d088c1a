package finding

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Saved is a State on disk.
type Saved struct {
	Findings []SavedFinding `json:"findings,omitempty"`
	// Past are findings that have ended, and may return.
	Past []SavedPast `json:"past,omitempty"`
	// Healed are the times of the commands that were carried out.
	Healed map[gpu.UUID]time.Time `json:"healed,omitempty"`
	// DriverDecides are the GPUs whose driver reports recovery actions.
	DriverDecides []gpu.UUID `json:"driverDecides,omitempty"`
}

// SavedFinding is a Finding without its effect, which follows from the settings.
type SavedFinding struct {
	GPU      gpu.UUID  `json:"gpu"`
	Key      Key       `json:"key"`
	Value    string    `json:"value,omitempty"`
	Note     string    `json:"note,omitempty"`
	Begin    time.Time `json:"begin"`
	Blocks   bool      `json:"blocks,omitempty"`
	Flapping bool      `json:"flapping,omitempty"`
}

// SavedPast is a finding that has ended.
type SavedPast struct {
	GPU     gpu.UUID    `json:"gpu"`
	Key     Key         `json:"key"`
	Value   string      `json:"value,omitempty"`
	Ended   time.Time   `json:"ended"`
	Returns []time.Time `json:"returns,omitempty"`
}

// Save returns the state for a file; the same state has the same form.
func (s *State) Save() Saved {
	saved := Saved{Healed: maps.Clone(s.healed), DriverDecides: slices.Sorted(maps.Keys(s.decides))}
	for _, f := range s.All() {
		saved.Findings = append(saved.Findings, SavedFinding{
			GPU: f.GPU, Key: f.Key, Value: f.Value, Note: f.Note, Begin: f.Begin, Blocks: f.Blocks(), Flapping: f.Flapping,
		})
	}
	for where, p := range s.past {
		saved.Past = append(saved.Past, SavedPast{where.gpu, where.key, where.value, p.ended, p.returns})
	}
	slices.SortFunc(saved.Past, func(a, b SavedPast) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	return saved
}

// Declared returns the part that outlives the driver and the boot: the findings that an administrator or another component has declared. They
// count until they are declared again.
func (saved Saved) Declared() Saved {
	return Saved{Findings: slices.DeleteFunc(slices.Clone(saved.Findings), func(f SavedFinding) bool { return !isDeclared(f.Key) })}
}

// Finding returns a saved finding under the present settings.
func (r Rules) Finding(f SavedFinding) Finding {
	found := Finding{GPU: f.GPU, Key: f.Key, Value: f.Value, Note: f.Note, Begin: f.Begin.UTC(), Flapping: f.Flapping, Effect: None}
	if f.Blocks {
		found.Effect = r.effect(f.Key)
	}
	return found
}

// Merge adds the findings of another process, or of an earlier one. Of a finding that both have, the earlier begin counts. A finding that
// this process does not see ends after further polls without it.
func (s *State) Merge(saved Saved) {
	for _, f := range saved.Findings {
		found := s.rules.Finding(f)
		where := placeOf(&found)
		before, there := s.entries[where]
		switch {
		case there && before.Effect == found.Effect:
			if found.Begin.Before(before.Begin) {
				before.Begin = found.Begin
			}
			before.Flapping = before.Flapping || found.Flapping
		case !there && !s.declared[f.Key]:
			s.entries[where] = &entry{Finding: found, shown: true} // until a reading does not show it
		}
	}
	for _, p := range saved.Past {
		where := place{p.GPU, p.Key, p.Value}
		if s.past[where].ended.Before(p.Ended) {
			s.past[where] = past{p.Ended, p.Returns}
		}
	}
	for id, at := range saved.Healed {
		if s.healed[id].Before(at) {
			s.healed[id] = at
		}
	}
	for _, id := range saved.DriverDecides {
		s.decides[id] = true
	}
}
