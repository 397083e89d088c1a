package nodeconfig

import (
	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// share takes over how many claims may use one MIG device of the GPU at once, by profile.
func (r *resolution) share(entry *v1alpha1.GPUEntry, g *gpu.GPU, modes *gpu.Modes) {
	if g.MIG == nil || len(shared(entry.MIG)) == 0 {
		return
	}
	for _, profile := range g.MIG.ProfileNames() {
		key := replicasKey(entry.MIG, profile)
		if entry.MIG.Replicas[key] < 2 {
			continue
		}
		if modes.MIGReplicas == nil {
			modes.MIGReplicas, modes.MIGResources = map[string]int{}, map[string]string{}
		}
		modes.MIGReplicas[profile] = int(entry.MIG.Replicas[key])
		if resource := r.sliceResource(entry, key); resource != "" {
			modes.MIGResources[profile] = resource
		}
	}
}

// replicasKey is the key of a profile in NodeMIG.Replicas: its own, else that for all profiles.
func replicasKey(mig *v1alpha1.NodeMIG, profile string) string {
	if _, own := mig.Replicas[profile]; own {
		return profile
	}
	return v1alpha1.AllProfiles
}

// sliceResource is the extended resource that requests one of the replicas of that key, empty if it is named after the profile. In a file
// of the device plugin the strategy decides whether MIG devices have names of their own; otherwise the MIG devices of all profiles are
// nvidia.com/gpu, or the new name of that resource.
func (r *resolution) sliceResource(entry *v1alpha1.GPUEntry, key string) string {
	strategy := v1alpha1.MIGStrategyMixed
	if flags := r.config.Flags; flags != nil && flags.MIGStrategy != nil {
		strategy = *flags.MIGStrategy
	}
	name := entry.MIG.ResourceNames[key]
	switch {
	case name != "" && (len(entry.Origins) == 0 || strategy == v1alpha1.MIGStrategyMixed || key == v1alpha1.AllProfiles):
		return name
	case strategy == v1alpha1.MIGStrategySingle:
		return wholeGPU
	default:
		return ""
	}
}
