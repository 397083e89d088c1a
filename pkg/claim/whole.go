package claim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepInterval is the kind of the step that sets the time-slice interval of a GPU.
const StepInterval = "interval"

// Interval is the Args of a step of kind StepInterval.
type Interval struct {
	Interval gpu.Interval `json:"interval"`
}

// ParseInterval reads the Args of a step of kind StepInterval.
func ParseInterval(args json.RawMessage) (i Interval, err error) {
	if err := json.Unmarshal(args, &i); err != nil {
		return i, fmt.Errorf("reading the arguments of step %s: %w", StepInterval, err)
	}
	return i, nil
}

// whole plans GPUs that are exclusive to a claim.
type whole struct{}

// Type is gpu.TypeGPU.
func (whole) Type() gpu.DeviceType { return gpu.TypeGPU }

// HasClass knows <driver>.
func (whole) HasClass(class, driver string) bool { return class == driver }

// Supports every strategy, and enforced memory: no other claim uses the GPU.
func (whole) Supports(string, *v1alpha1.GPUConfig) error { return nil }

// Admit refuses nothing.
func (whole) Admit(*Result, string) error { return nil }

// Plan turns the GPU's MIG mode off if it may be on, and sets the time-slice interval or plans the sharing strategy of the claim's
// configuration.
func (whole) Plan(p *Plan, r *Result, options Options, modes gpu.Modes) error {
	p.withoutMIG(r, modes)
	if !options.setInterval() {
		return p.planStrategy(r, options, modes, nil)
	}
	const fix = "take the interval out of the claim's configuration"
	g := r.Device.Parent()
	switch {
	case r.Admin:
		return r.refuse(fix, adminInterval)
	case !volta(g):
		return r.refuse(fix, "the time-slice interval of a GPU of compute capability %s (%s) cannot be set: that requires 7.0 (Volta) or later",
			g.Product.ComputeCapability, g.Product.Name)
	}
	args, err := json.Marshal(Interval{Interval: gpu.Interval(*options.GPU.Sharing.TimeSlicing.Interval)})
	if err != nil {
		return err
	}
	p.Steps = append(p.Steps, Step{Kind: StepInterval, Target: g.UUID, Device: r.Device.Name(), Args: args})
	return nil
}

// Resource is none: a whole GPU cannot be shared.
func (whole) Resource(gpu.Device, gpu.Modes) string { return "" }

// adminInterval is why a claim with admin access sets no interval.
const adminInterval = "a time-slice interval cannot be set with adminAccess: nothing about a GPU is changed for such a claim"

// withoutMIG adds that the result's GPU is not in MIG mode, if it may be: it is also advertised as MIG devices, or was seen in MIG mode.
func (p *Plan) withoutMIG(r *Result, modes gpu.Modes) {
	if g := r.Device.Parent(); !r.Admin && g.MIG != nil && (modes.Partitioned() || g.MIG.Mode.Enabled) {
		p.require(Precondition{Kind: PreconditionNoMIGMode, Target: g.UUID})
	}
}

// volta reports whether a GPU has compute capability 7.0 or later, from which on time-slice intervals can be set and MPS clients have
// limits. It is tried if the driver does not report the GPU's capability.
func volta(g *gpu.GPU) bool {
	major, _, _ := strings.Cut(g.Product.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= 7
}
