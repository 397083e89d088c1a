package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// NVIDIAAPIVersion is the apiVersion of opaque configuration of NVIDIA's DRA
// driver.
const NVIDIAAPIVersion = "resource.nvidia.com/v1beta1"

// The supported kinds of NVIDIAAPIVersion.
const (
	KindNVIDIAGPU = "GpuConfig"
	KindNVIDIAMIG = "MigDeviceConfig"
)

// NVIDIA is a configuration of NVIDIA's DRA driver.
type NVIDIA struct {
	// Kind is KindNVIDIAGPU, which is for whole GPUs, or KindNVIDIAMIG, which is
	// for MIG devices.
	Kind string
	// Config is the same configuration as a kind of this package.
	Config *GPUConfig
}

// WrittenForNVIDIA reports whether a configuration is of NVIDIAAPIVersion. It
// may be invalid otherwise.
func WrittenForNVIDIA(raw []byte) bool {
	tree, err := parse(raw, MaxConfigBytes)
	return err == nil && tree.text("apiVersion") == NVIDIAAPIVersion
}

// DecodeNVIDIA reads one configuration of NVIDIAAPIVersion as strictly as Decode
// reads, and translates it. Strategy MPS is refused; TimeSlicing without an
// interval means interval Default, as it does there, and on a MIG device
// nothing. The error is a *Problems.
func DecodeNVIDIA(raw []byte) (*NVIDIA, error) {
	tree, err := parse(raw, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	kind, err := headerOf(tree, NVIDIAAPIVersion, []string{KindNVIDIAGPU, KindNVIDIAMIG})
	if err != nil {
		return nil, err
	}
	p, config := &problems{}, &GPUConfig{}
	switch kind {
	case KindNVIDIAGPU:
		written := &nvidiaGPU{}
		if err := fit(tree, kind, written); err != nil {
			return nil, err
		}
		config.Sharing = written.Sharing.translate(p)
	default:
		written := &nvidiaMIG{}
		if err := fit(tree, kind, written); err != nil {
			return nil, err
		}
		if written.Sharing != nil {
			written.Sharing.validate(p)
		}
	}
	if err := p.err(kind); err != nil {
		return nil, err
	}
	return &NVIDIA{Kind: kind, Config: config}, nil
}

// nvidiaHeader are the fields that both kinds have.
type nvidiaHeader struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type nvidiaGPU struct {
	nvidiaHeader `json:",inline"`
	Sharing      *nvidiaGPUSharing `json:"sharing"`
}

type nvidiaGPUSharing struct {
	nvidiaSharing `json:",inline"`
	TimeSlicing   *struct {
		Interval *Interval `json:"interval"`
	} `json:"timeSlicingConfig"`
}

type nvidiaMIG struct {
	nvidiaHeader `json:",inline"`
	Sharing      *nvidiaSharing `json:"sharing"`
}

type nvidiaSharing struct {
	Strategy *Strategy `json:"strategy"`
	MPS      *struct {
		ActiveThreadPercentage *int32                       `json:"defaultActiveThreadPercentage"`
		MemoryLimit            *resource.Quantity           `json:"defaultPinnedDeviceMemoryLimit"`
		MemoryLimits           map[string]resource.Quantity `json:"defaultPerDevicePinnedMemoryLimit"`
		MultiUser              *bool                        `json:"multiUser"`
	} `json:"mpsConfig"`
}

// validate refuses unsupported strategies.
func (s *nvidiaSharing) validate(p *problems) {
	const path = "sharing.strategy"
	switch {
	case s.Strategy == nil:
		p.add(path, "required; supported values: %s", StrategyTimeSlicing)
	case *s.Strategy == StrategyMPS:
		p.add(path, "%s is not supported by this version of the driver; supported values: %s", StrategyMPS, StrategyTimeSlicing)
	case *s.Strategy != StrategyTimeSlicing:
		p.add(path, "unsupported value %s; supported values: %s", quote(string(*s.Strategy)), StrategyTimeSlicing)
	case s.MPS != nil:
		p.add("sharing.mpsConfig", "has no effect with strategy %s; remove it", StrategyTimeSlicing)
	}
}

// translate returns nil where nothing has to be set.
func (s *nvidiaGPUSharing) translate(p *problems) *Sharing {
	if s == nil {
		return nil
	}
	s.validate(p)
	interval := IntervalDefault
	if s.TimeSlicing != nil {
		oneOf(p, "sharing.timeSlicingConfig.interval", s.TimeSlicing.Interval, intervals)
		if s.TimeSlicing.Interval != nil {
			interval = *s.TimeSlicing.Interval
		}
	}
	return &Sharing{Strategy: new(StrategyTimeSlicing), TimeSlicing: &TimeSlicing{Interval: &interval}}
}
