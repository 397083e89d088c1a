package plan

import (
	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
)

// byHand returns how the claim's processes are recorded by hand.
func byHand(c *v1alpha1.ProfilerConfig) store.ByHand {
	of := store.ByHand{Waits: c.Manual(), OnDemand: *c.Arm == v1alpha1.ArmOnDemand}
	if of.Waits {
		of.SamplesCPU = *c.CPUSampling != v1alpha1.CPUSamplingNone
		if c.Duration != nil {
			of.Duration = c.Duration.Duration
		}
	}
	return of
}
