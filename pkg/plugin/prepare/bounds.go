package prepare

import (
	"encoding/json"
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

// withinBounds refuses a claim whose shares, together with the shares of other claims, exceed the device. The scheduler counts the same,
// but a claim that it no longer knows, because its pod was deleted by force, may still hold its share.
func (steps Steps) withinBounds(guard *ownership.Guard, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		bounded, ok := steps[s.Kind].(Bounded)
		if !ok || slices.ContainsFunc(r.Steps[:i], func(earlier checkpoint.Step) bool {
			return earlier.Kind == s.Kind && earlier.Target == s.Target && earlier.Device == s.Device
		}) {
			continue
		}
		others := guard.Others(r, s.Target, s.Device, s.Kind)
		if len(others.Data) == 0 {
			continue
		}
		exceeded, err := bounded.Exceeded(*s, append(ownData(r, s), others.Data...))
		if err != nil {
			return err
		}
		if exceeded != "" {
			refusal := &claim.Refusal{
				Device: s.Device, Cause: exceeded + ": other claims still hold theirs", Transient: true,
				Fix: "if a pod with a share was deleted by force, its containers may still be exiting; the log of the kubelet plugin on the node " +
					"names a claim that holds one",
			}
			if at := r.ResultOf(s); at >= 0 {
				refusal.Request = r.Results[at].Request
			}
			return &heldError{other: others.Owner, released: others.Released, refusal: refusal}
		}
	}
	return nil
}

// ownData returns the data that the extension of the step's kind keeps for the record's own results of the step's device.
func ownData(r *checkpoint.Record, s *checkpoint.Step) (all []json.RawMessage) {
	for i := range r.Results {
		result := &r.Results[i]
		if result.GPUUUID == s.Target && result.Device == s.Device && result.Extensions.Has(s.Kind) && !result.Admin {
			all = append(all, result.Extensions[s.Kind])
		}
	}
	return all
}
