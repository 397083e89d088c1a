package v1alpha1

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// NVIDIAAPIVersion is the apiVersion of opaque configuration of NVIDIA's DRA
// driver.
const NVIDIAAPIVersion = "resource.nvidia.com/v1beta1"

// The supported kinds of NVIDIAAPIVersion.
const (
	KindNVIDIAGPU = "GpuConfig"
	KindNVIDIAMIG = "MigDeviceConfig"
)

var nvidiaKinds = []string{KindNVIDIAGPU, KindNVIDIAMIG}

// NVIDIA is a configuration of NVIDIA's DRA driver.
type NVIDIA struct {
	// Kind is KindNVIDIAGPU, for whole GPUs, or KindNVIDIAMIG, for MIG devices.
	Kind string
	// Config is the same configuration as a kind of this package.
	Config *GPUConfig
	// MemoryLimits are the memory limits of strategy MPS for single devices of the configuration, which replace the general limit. Keys are
	// UUIDs, or positions in the order of allocation to the claim, from "0".
	MemoryLimits map[string]resource.Quantity `json:",omitempty"`
}

// WrittenForNVIDIA reports whether the apiVersion of a configuration is NVIDIAAPIVersion. It may be invalid otherwise.
func WrittenForNVIDIA(raw []byte) bool {
	tree, err := parse(raw, MaxConfigBytes)
	return err == nil && tree.text("apiVersion") == NVIDIAAPIVersion
}

// DecodeNVIDIA reads one configuration of NVIDIAAPIVersion as strictly as Decode, and translates it as NVIDIA's driver interprets it:
// TimeSlicing without an interval is interval Default, on a MIG device nothing. Memory limits are rounded down to multiples of 1Mi.
// multiUser has no effect: clients of every user are accepted if the NVIDIA driver supports it. The error is a *Problems.
func DecodeNVIDIA(raw []byte) (*NVIDIA, error) {
	tree, err := parse(raw, MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	kind, err := headerOf(tree, NVIDIAAPIVersion, nvidiaKinds)
	if err != nil {
		return nil, err
	}
	p, read := &problems{}, &NVIDIA{Kind: kind, Config: &GPUConfig{}}
	switch kind {
	case KindNVIDIAGPU:
		written := &nvidiaGPU{}
		if err := fit(tree, kind, written); err != nil {
			return nil, err
		}
		written.Sharing.translate(p, read)
	default:
		written := &nvidiaMIG{}
		if err := fit(tree, kind, written); err != nil {
			return nil, err
		}
		written.Sharing.translate(p, read)
	}
	if err := p.err(kind); err != nil {
		return nil, err
	}
	return read, nil
}

// nvidiaHeader contains the fields of both kinds.
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
	Strategy *Strategy  `json:"strategy"`
	MPS      *nvidiaMPS `json:"mpsConfig"`
}

type nvidiaMPS struct {
	ActiveThreadPercentage *int32                       `json:"defaultActiveThreadPercentage"`
	MemoryLimit            *resource.Quantity           `json:"defaultPinnedDeviceMemoryLimit"`
	MemoryLimits           map[string]resource.Quantity `json:"defaultPerDevicePinnedMemoryLimit"`
	MultiUser              *bool                        `json:"multiUser"`
}

// translate sets nothing for strategy TimeSlicing.
func (s *nvidiaSharing) translate(p *problems, read *NVIDIA) {
	if s == nil {
		return
	}
	const path = "sharing.strategy"
	if s.Strategy == nil {
		p.add(path, "required; supported values: %s", list(strategies))
		return
	}
	oneOf(p, path, s.Strategy, strategies)
	switch {
	case *s.Strategy == StrategyMPS:
		read.Config.Sharing = &Sharing{Strategy: new(StrategyMPS), MPS: s.MPS.translate(p, read)}
	case s.MPS != nil:
		p.add("sharing.mpsConfig", "has no effect with strategy %s; remove it", *s.Strategy)
	}
}

// translate sets an interval for strategy TimeSlicing.
func (s *nvidiaGPUSharing) translate(p *problems, read *NVIDIA) {
	if s == nil {
		return
	}
	s.nvidiaSharing.translate(p, read)
	switch {
	case s.Strategy == nil:
	case *s.Strategy == StrategyTimeSlicing:
		interval := IntervalDefault
		if s.TimeSlicing != nil && s.TimeSlicing.Interval != nil {
			interval = *s.TimeSlicing.Interval
		}
		oneOf(p, "sharing.timeSlicingConfig.interval", &interval, intervals)
		read.Config.Sharing = &Sharing{Strategy: new(StrategyTimeSlicing), TimeSlicing: &TimeSlicing{Interval: &interval}}
	case s.TimeSlicing != nil:
		p.add("sharing.timeSlicingConfig", "has no effect with strategy %s; remove it", *s.Strategy)
	}
}

// deviceKey is the key of a memory limit of a single device: a position in the order of devices, or a UUID.
var deviceKey = regexp.MustCompile(`^(0|[1-9][0-9]{0,2}|(GPU|MIG)-[0-9A-Za-z/-]{1,100})$`)

// translate returns nil for nil.
func (m *nvidiaMPS) translate(p *problems, read *NVIDIA) *MPS {
	if m == nil {
		return nil
	}
	const path = "sharing.mpsConfig"
	between(p, join(path, "defaultActiveThreadPercentage"), m.ActiveThreadPercentage, 0, 100)
	config := &MPS{ActiveThreadPercentage: m.ActiveThreadPercentage}
	if m.MemoryLimit != nil {
		config.MemoryLimit = new(inMiB(p, join(path, "defaultPinnedDeviceMemoryLimit"), m.MemoryLimit))
	}
	for _, device := range slices.Sorted(maps.Keys(m.MemoryLimits)) {
		at := fmt.Sprintf("%s[%s]", join(path, "defaultPerDevicePinnedMemoryLimit"), device)
		if !deviceKey.MatchString(device) {
			p.add(at, "must be the UUID or the index of a GPU or MIG device, got %s", quote(device))
			continue
		}
		if read.MemoryLimits == nil {
			read.MemoryLimits = map[string]resource.Quantity{}
		}
		limit := m.MemoryLimits[device]
		read.MemoryLimits[device] = inMiB(p, at, &limit)
	}
	return config
}

// inMiB returns a memory limit as NVIDIA's driver sets it, in whole MiB.
func inMiB(p *problems, path string, quantity *resource.Quantity) resource.Quantity {
	bytes := quantity.Value()
	if bytes < mebibyte {
		p.add(path, "must be at least 1Mi, got %s", quantity)
	}
	return *resource.NewQuantity(bytes/mebibyte*mebibyte, resource.BinarySI)
}
