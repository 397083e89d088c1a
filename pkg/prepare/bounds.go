package prepare

import (
	"slices"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/ownership"
)

// withinBounds refuses MPS shares that would be more, with those of other claims, than the device has. The scheduler counts the same, but a
// claim that it does not know any more may still have its share: its pod was deleted by force.
func withinBounds(guard *ownership.Guard, r *checkpoint.Record) error {
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Kind != claim.StepMPS || slices.ContainsFunc(r.Steps[:i], func(earlier checkpoint.Step) bool {
			return earlier.Kind == s.Kind && earlier.Target == s.Target && earlier.Device == s.Device
		}) {
			continue
		}
		args, err := claim.ParseMPS(s.Args)
		if err != nil {
			return err
		}
		others := guard.Clients(r, s.Target, s.Device)
		if len(others.Uses) == 0 {
			continue
		}
		if exceeded := args.Bounds.Exceeded(append(clientsOf(r, s.Target, s.Device), asUses(others.Uses)...)); exceeded != "" {
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

// clientsOf are the record's own uses of a device as an MPS client.
func clientsOf(r *checkpoint.Record, id gpu.UUID, device string) (uses []claim.MPSUse) {
	for i := range r.Results {
		if result := &r.Results[i]; result.GPUUUID == id && result.Device == device && result.MPS != nil && !result.Admin {
			uses = append(uses, asUse(*result.MPS))
		}
	}
	return uses
}

func asUses(recorded []checkpoint.MPS) (uses []claim.MPSUse) {
	for _, m := range recorded {
		uses = append(uses, asUse(m))
	}
	return uses
}

// asUse is a recorded use as it was planned.
func asUse(m checkpoint.MPS) claim.MPSUse {
	return claim.MPSUse{Daemon: m.Daemon, MemoryMiB: m.MemoryMiB, ActiveThreadPercentage: m.ActiveThreadPercentage}
}
