package claim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepInterval is the kind of the step that sets how long the processes of a claim run before the next gets its turn.
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

// adminInterval is why a claim with admin access sets no interval.
const adminInterval = "with admin access nothing about a GPU is changed, and an interval changes it for its owner"

func setsInterval(c *v1alpha1.GPUConfig) bool {
	return c.Sharing != nil && c.Sharing.TimeSlicing != nil && c.Sharing.TimeSlicing.Interval != nil
}

// take adds the step that a result's configuration asks for: an interval for the GPU that the claim has for itself.
func (p *Plan) take(r *Result, config *v1alpha1.GPUConfig) error {
	if !setsInterval(config) {
		return nil
	}
	g := r.Device.Parent()
	refused := &Refusal{Request: r.Request, Device: string(r.Device.Name()), Fix: "take the interval out of the claim's configuration"}
	switch {
	case r.Admin:
		refused.Cause = adminInterval
		return refused
	case !settable(g):
		refused.Cause = fmt.Sprintf("the time slices of a GPU of compute capability %s (%s) cannot be set: that needs 7.0 (Volta) or later",
			g.Product.ComputeCapability, g.Product.Name)
		return refused
	}
	args, err := json.Marshal(Interval{Interval: gpu.Interval(*config.Sharing.TimeSlicing.Interval)})
	if err != nil {
		return err
	}
	p.Steps = append(p.Steps, Step{Kind: StepInterval, Target: g.UUID, Device: r.Device.Name(), Args: args})
	return nil
}

// volta is the first compute capability whose time slices can be set.
const volta = 7

// settable tells whether the driver can set a GPU's time slices. One that does not tell what it is may be asked.
func settable(g *gpu.GPU) bool {
	major, _, _ := strings.Cut(g.Product.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n >= volta
}
