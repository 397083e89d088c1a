package ownership

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// shared is the part of a claim's use of a GPU that other claims may share.
type shared struct {
	bootID string
	// steps are its effects.
	steps []checkpoint.Step
	// extended are its devices with data of extensions.
	extended []extended
	// unknown are its devices whose effects only a newer version knows; an empty name may be any device.
	unknown []string
}

// extended is one device with data of extensions.
type extended struct {
	device     string
	extensions checkpoint.Extensions
}

// sharedOf is the shared part of a record's use of a GPU.
func sharedOf(r *checkpoint.Record, id gpu.UUID) shared {
	s := shared{bootID: r.BootID}
	for i := range r.Steps {
		if r.Steps[i].Target == id {
			s.steps = append(s.steps, r.Steps[i])
		}
	}
	for i := range r.Results {
		result := &r.Results[i]
		if result.GPUUUID != id || result.Admin {
			continue
		}
		if r.Newer() {
			s.unknown = append(s.unknown, result.Device)
		}
		if len(result.Extensions) > 0 && owns(r, result) {
			s.extended = append(s.extended, extended{device: result.Device, extensions: result.Extensions})
		}
	}
	return s
}

// sameSteps reports whether both contain equivalent effects.
func (s shared) sameSteps(other shared) bool {
	return slices.EqualFunc(s.steps, other.steps, func(a, b checkpoint.Step) bool {
		return a.Kind == b.Kind && a.Device == b.Device && a.ShareID == b.ShareID
	})
}

// has reports whether the claim may have the effect in this boot.
func (s shared) has(step *checkpoint.Step, bootID string, same func(a, b checkpoint.Step) bool) bool {
	if s.bootID != bootID && (s.bootID != "" || len(s.unknown) == 0) {
		return false // a reboot removes effects
	}
	return slices.ContainsFunc(s.unknown, func(device string) bool { return device == "" || device == step.Device }) ||
		slices.ContainsFunc(s.steps, func(other checkpoint.Step) bool { return other.Kind == step.Kind && same(other, *step) })
}

// Shared reports whether another claim may have the effect of a step of this record, where same compares steps of one kind on one GPU: its
// record contains such a step that is not undone, or only a newer version can read its effects on the device. Effects of another boot do
// not count.
func (g *Guard) Shared(r *checkpoint.Record, step *checkpoint.Step, same func(a, b checkpoint.Step) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid, other := range g.owners[step.Target] {
		if uid != r.Claim.UID && other.shared.has(step, r.BootID, same) {
			return true
		}
	}
	return false
}

// Others is the data of an extension for a device of other claims.
type Others struct {
	// Data contains one element for each result.
	Data []json.RawMessage
	// Owner is one of these claims, preferably one that is being released.
	Owner checkpoint.Claim
	// Released is closed when a claim releases a GPU after this was read.
	Released <-chan struct{}
}

// Others returns the data of the extension of that kind for a device of a GPU in claims other than the record's.
func (g *Guard) Others(r *checkpoint.Record, id gpu.UUID, device, kind string) Others {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := Others{Released: g.notice.released}
	releasing := false
	for _, uid := range slices.Sorted(maps.Keys(g.owners[id])) {
		other := g.owners[id][uid]
		if uid == r.Claim.UID {
			continue
		}
		for _, e := range other.shared.extended {
			if e.device != device || !e.extensions.Has(kind) {
				continue
			}
			if len(found.Data) == 0 || other.releasing && !releasing {
				found.Owner, releasing = other.claim, other.releasing
			}
			found.Data = append(found.Data, e.extensions[kind])
		}
	}
	return found
}
