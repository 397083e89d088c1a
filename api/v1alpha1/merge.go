package v1alpha1

// Source is the origin of an option.
type Source string

// The sources, in the order in which they are merged.
const (
	FromNode  Source = "node"
	FromClass Source = "DeviceClass"
	// FromDefaults are the cluster's defaults for profiles.
	FromDefaults Source = "cluster default"
	FromClaim    Source = "ResourceClaim"
)

// Merge lays the fields that override sets over the fields of base. It returns a new object that shares nothing with either; nil stands for
// an empty object. from is the source of override.
//
// If override uses another sharing strategy than base, the settings of the strategy of base are dropped. It is an error if override sets
// claimOverride and is no class, or sets anything although base forbids overrides.
func Merge(base, override *GPUConfig, from Source) (*GPUConfig, error) {
	if err := mayOverride(base, override, from); err != nil {
		return nil, err
	}
	merged := &GPUConfig{}
	for _, layer := range []*GPUConfig{base, override} {
		if layer == nil {
			continue
		}
		merged.TypeMeta = layer.TypeMeta
		merged.Sharing = mergeSharing(merged.Sharing, layer.Sharing)
		lay(&merged.EnforceMemory, layer.EnforceMemory)
		lay(&merged.ClaimOverride, layer.ClaimOverride)
	}
	return merged, nil
}

func mayOverride(base, override *GPUConfig, from Source) error {
	if override == nil || from == FromClass {
		return nil
	}
	var of *ClaimOverride
	if base != nil {
		of = base.ClaimOverride
	}
	return checkOverride(KindGPUConfig, of, override.ClaimOverride, override.set(), from)
}

// checkOverride refuses fields of a claim whose class forbids overrides, and claimOverride anywhere but in a class. of is the claimOverride
// of the layers below.
func checkOverride(kind string, of, own *ClaimOverride, fields []string, from Source) error {
	p := &problems{}
	if own != nil {
		p.add("claimOverride", "must not be set by a %s; only a DeviceClass may set it", from)
		return p.err(kind)
	}
	if from == FromClaim && of != nil && *of == ClaimOverrideForbidden {
		for _, field := range fields {
			p.add(field, "must not be set by the claim: claimOverride of the DeviceClass is %s; remove it or use another class",
				ClaimOverrideForbidden)
		}
	}
	return p.err(kind)
}

func (c *GPUConfig) set() []string {
	var fields []string
	if c.Sharing != nil {
		fields = append(fields, "sharing")
	}
	if c.EnforceMemory != nil {
		fields = append(fields, "enforceMemory")
	}
	return fields
}

// lay overwrites a field with a copy of a set value.
func lay[T any](field **T, value *T) {
	if value != nil {
		*field = new(*value)
	}
}

func mergeSharing(base, override *Sharing) *Sharing {
	if override == nil {
		return base
	}
	merged := &Sharing{}
	if base != nil && !override.leaves(base) {
		merged = base
	}
	lay(&merged.Strategy, override.Strategy)
	if override.TimeSlicing != nil {
		fill(&merged.TimeSlicing, TimeSlicing{})
		lay(&merged.TimeSlicing.Interval, override.TimeSlicing.Interval)
	}
	if override.MPS != nil {
		merged.MPS = mergeMPS(merged.MPS, override.MPS)
	}
	return merged
}

// leaves reports whether s uses another strategy than base; the settings of base's strategy then do not apply.
func (s *Sharing) leaves(base *Sharing) bool {
	chosen, old := s.chosen(), base.chosen()
	return chosen != nil && old != nil && *chosen != *old
}

// chosen returns the strategy that s sets or implies, or nil.
func (s *Sharing) chosen() *Strategy {
	if s.Strategy == nil && (s.MPS != nil || s.TimeSlicing != nil) {
		return new(s.implied())
	}
	return s.Strategy
}

func mergeMPS(base, override *MPS) *MPS {
	if base == nil {
		base = &MPS{}
	}
	lay(&base.ActiveThreadPercentage, override.ActiveThreadPercentage)
	if override.MemoryLimit != nil {
		base.MemoryLimit = new(override.MemoryLimit.DeepCopy())
	}
	return base
}
