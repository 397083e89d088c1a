package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUConfig says how the processes of one claim use its GPUs.
type GPUConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Sharing says how processes share the GPU. Unset: as the driver shares by
	// itself, nothing is set on the GPU.
	Sharing *Sharing `json:"sharing,omitempty"`
	// EnforceMemory asks for a memory limit that processes cannot exceed;
	// a claim that cannot get one fails. Default: false.
	EnforceMemory *bool `json:"enforceMemory,omitempty"`
	// ClaimOverride says whether claims may change what their class set. Only
	// a DeviceClass may set it. Default: Allowed.
	ClaimOverride *ClaimOverride `json:"claimOverride,omitempty"`
}

// Sharing is the way in which processes share a GPU. Settings of a strategy
// other than the chosen one are refused.
type Sharing struct {
	// Strategy defaults to the one whose settings are given, else TimeSlicing.
	Strategy *Strategy `json:"strategy,omitempty"`
	// TimeSlicing has the settings of strategy TimeSlicing.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS has the settings of strategy MPS.
	MPS *MPS `json:"mps,omitempty"`
}

// Strategy is a way of sharing.
type Strategy string

// The strategies.
const (
	StrategyTimeSlicing Strategy = "TimeSlicing"
	StrategyMPS         Strategy = "MPS"
)

// TimeSlicing has the settings of the GPU's own time-slicing.
type TimeSlicing struct {
	// Interval is how long a process runs before the next gets its turn.
	// Unset: the GPU's interval is left as it is.
	Interval *Interval `json:"interval,omitempty"`
}

// Interval is the length of a time slice. The driver has names for them only.
type Interval string

// The intervals.
const (
	IntervalDefault Interval = "Default"
	IntervalShort   Interval = "Short"
	IntervalMedium  Interval = "Medium"
	IntervalLong    Interval = "Long"
)

// MPS has the limits that the MPS daemon gives to the clients of the claim.
type MPS struct {
	// ActiveThreadPercentage is the part of the multiprocessors a client may
	// use, in percent, 0 to 100; 0 is no limit. Unset: what was allocated.
	ActiveThreadPercentage *int32 `json:"activeThreadPercentage,omitempty"`
	// MemoryLimit is the device memory a client may allocate, in whole MiB.
	// Unset: what was allocated.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
}

// ClaimOverride is whether claims may change the options of their class.
type ClaimOverride string

// The values of claimOverride.
const (
	ClaimOverrideAllowed   ClaimOverride = "Allowed"
	ClaimOverrideForbidden ClaimOverride = "Forbidden"
)

var (
	strategies     = []Strategy{StrategyTimeSlicing, StrategyMPS}
	intervals      = []Interval{IntervalDefault, IntervalShort, IntervalMedium, IntervalLong}
	claimOverrides = []ClaimOverride{ClaimOverrideAllowed, ClaimOverrideForbidden}
)

// Default fills unset fields, in place. Sharing stays unset, and so do limits
// and the interval: unset means that nothing is set on the GPU.
func (c *GPUConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindGPUConfig
	if c.Sharing != nil && c.Sharing.Strategy == nil {
		c.Sharing.Strategy = new(c.Sharing.implied())
	}
	fill(&c.EnforceMemory, false)
	fill(&c.ClaimOverride, ClaimOverrideAllowed)
}

func (s *Sharing) implied() Strategy {
	if s.MPS != nil && s.TimeSlicing == nil {
		return StrategyMPS
	}
	return StrategyTimeSlicing
}

// fill gives an unset field its default.
func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Validate returns nil or a *Problems.
func (c *GPUConfig) Validate() error {
	p := &problems{}
	if c.Sharing != nil {
		c.Sharing.validate(p, "sharing")
	}
	oneOf(p, "claimOverride", c.ClaimOverride, claimOverrides)
	return p.err(KindGPUConfig)
}

func (s *Sharing) validate(p *problems, path string) {
	oneOf(p, join(path, "strategy"), s.Strategy, strategies)
	s.validateChoice(p, path)
	if s.TimeSlicing != nil {
		oneOf(p, join(path, "timeSlicing.interval"), s.TimeSlicing.Interval, intervals)
	}
	if s.MPS != nil {
		between(p, join(path, "mps.activeThreadPercentage"), s.MPS.ActiveThreadPercentage, 0, 100)
		wholeMiB(p, join(path, "mps.memoryLimit"), s.MPS.MemoryLimit)
	}
}

// validateChoice refuses settings that would be without effect.
func (s *Sharing) validateChoice(p *problems, path string) {
	if s.Strategy == nil {
		if s.TimeSlicing != nil && s.MPS != nil {
			p.add(path, "has both timeSlicing and mps; remove one of them, or set strategy and remove the other")
		}
		return
	}
	if s.TimeSlicing != nil && *s.Strategy == StrategyMPS {
		p.add(join(path, "timeSlicing"), "has no effect with strategy MPS; remove it or set strategy to TimeSlicing")
	}
	if s.MPS != nil && *s.Strategy == StrategyTimeSlicing {
		p.add(join(path, "mps"), "has no effect with strategy TimeSlicing; remove it or set strategy to MPS")
	}
}

const mebibyte = 1 << 20

// wholeMiB refuses a set quantity that the MPS daemon and the scheduler could
// not both keep to: less than 1Mi, or not a multiple of it.
func wholeMiB(p *problems, path string, quantity *resource.Quantity) {
	if quantity == nil {
		return
	}
	bytes := quantity.Value()
	if quantity.CmpInt64(bytes) != 0 || bytes < mebibyte || bytes%mebibyte != 0 {
		p.add(path, "%s is not allowed; allowed: a whole number of Mi, at least 1Mi", quantity)
	}
}
