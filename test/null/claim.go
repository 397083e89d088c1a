package null

import (
	"encoding/json"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepKind is the kind of the step of a claim.
const StepKind = "null"

// Claims plans the family's results.
type Claims struct{}

// Type returns Type.
func (Claims) Type() gpu.DeviceType { return Type }

// HasClass reports whether the class is null.<driver>.
func (Claims) HasClass(class, driver string) bool { return class == string(Type)+"."+driver }

// Supports accepts everything.
func (Claims) Supports(string, *v1alpha1.GPUConfig) error { return nil }

// Admit refuses admin access.
func (Claims) Admit(r *claim.Result, _ string) error {
	if r.Admin {
		return &claim.Refusal{Request: r.Request, Device: string(r.Device.Name()), Cause: "null devices cannot be requested with adminAccess"}
	}
	return nil
}

// Plan adds a step whose arguments are the options.
func (Claims) Plan(p *claim.Plan, r *claim.Result, options claim.Options, _ gpu.Modes) error {
	args, err := json.Marshal(options)
	if err != nil {
		return err
	}
	p.Steps = append(p.Steps, claim.Step{Kind: StepKind, Target: r.Device.Parent().UUID, Device: r.Device.Name(), Args: args})
	return nil
}

// Resource returns no resource name.
func (Claims) Resource(gpu.Device, gpu.Modes) string { return "" }
