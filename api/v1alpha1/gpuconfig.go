package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUConfig configures how the processes of one claim use its GPUs.
type GPUConfig struct {
	metav1.TypeMeta `json:",inline"`

	// Sharing is how processes share the GPU. Unset: nothing is set on the GPU,
	// and the NVIDIA driver time-slices as it is configured.
	Sharing *Sharing `json:"sharing,omitempty"`
	// EnforceMemory requires a memory limit that processes cannot exceed. Claims
	// for GPUs without such a limit are refused, and so is strategy MPS. Default:
	// false.
	EnforceMemory *bool `json:"enforceMemory,omitempty"`
	// ClaimOverride is whether claims may override the options of their class. Only a DeviceClass may set it. Default: Allowed.
	ClaimOverride *ClaimOverride `json:"claimOverride,omitempty"`
}

// Sharing is the way in which processes share a GPU. Settings of other strategies are refused.
type Sharing struct {
	// Strategy is the sharing strategy. Unset: the strategy whose settings are set, else TimeSlicing.
	Strategy *Strategy `json:"strategy,omitempty"`
	// TimeSlicing contains the settings of strategy TimeSlicing.
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// MPS contains the settings of strategy MPS.
	MPS *MPS `json:"mps,omitempty"`
}

// Strategy is a way of sharing.
type Strategy string

// The strategies.
const (
	StrategyTimeSlicing Strategy = "TimeSlicing"
	StrategyMPS         Strategy = "MPS"
)

// TimeSlicing contains the settings of the GPU's own time-slicing.
type TimeSlicing struct {
	// Interval is the time-slice interval: how long one process runs before the
	// GPU switches to the next. Unset: the interval of the GPU is not changed.
	Interval *Interval `json:"interval,omitempty"`
}

// Interval is a time-slice interval. The NVIDIA driver defines names for intervals and no durations.
type Interval string

// The intervals.
const (
	IntervalDefault Interval = "Default"
	IntervalShort   Interval = "Short"
	IntervalMedium  Interval = "Medium"
	IntervalLong    Interval = "Long"
)

// MPS contains the limits of each process of the claim, as a client of MPS. For an MPS share they can only lower the allocated limits.
type MPS struct {
	// ActiveThreadPercentage is the portion of the SMs that a client may use, in percent; 0 is unlimited. Unset: the allocated portion,
	// unlimited for a GPU or MIG device of its own.
	ActiveThreadPercentage *int32 `json:"activeThreadPercentage,omitempty"`
	// MemoryLimit is the pinned device memory that a client may allocate, in multiples of 1Mi. Unset: the allocated memory, unlimited for a
	// GPU or MIG device of its own.
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

// Default fills unset fields, in place. Sharing, limits and the interval stay
// unset: then nothing is set on the GPU.
func (c *GPUConfig) Default() {
	c.APIVersion, c.TypeMeta.Kind = APIVersion, KindGPUConfig
	if c.Sharing != nil && c.Sharing.Strategy == nil {
		c.Sharing.Strategy = new(c.Sharing.implied())
	}
	fill(&c.EnforceMemory, false)
	fill(&c.ClaimOverride, ClaimOverrideAllowed)
}

// Strategies returns all strategies.
func Strategies() []Strategy { return slices.Clone(strategies) }

// Uses returns the strategy that is set or implied by the settings, or the empty string.
func (s *Sharing) Uses() Strategy {
	if chosen := s.chosen(); chosen != nil {
		return *chosen
	}
	return ""
}

func (s *Sharing) implied() Strategy {
	if s.MPS != nil && s.TimeSlicing == nil {
		return StrategyMPS
	}
	return StrategyTimeSlicing
}

// fill sets an unset field to its default.
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

// validateChoice refuses settings without effect.
func (s *Sharing) validateChoice(p *problems, path string) {
	if s.Strategy == nil {
		if s.TimeSlicing != nil && s.MPS != nil {
			p.add(path, "timeSlicing and mps are mutually exclusive; remove one of them")
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

// wholeMiB refuses a set quantity that the MPS control daemon and the scheduler
// would round differently: less than 1Mi, or not a multiple of it.
func wholeMiB(p *problems, path string, quantity *resource.Quantity) {
	if quantity == nil {
		return
	}
	bytes := quantity.Value()
	if quantity.CmpInt64(bytes) != 0 || bytes < mebibyte || bytes%mebibyte != 0 {
		p.add(path, "must be a multiple of 1Mi and at least 1Mi, got %s", quantity)
	}
}
