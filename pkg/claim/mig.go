package claim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepMIG is the kind of the step that makes a MIG device.
const StepMIG = "mig"

// The kinds of needs.
const (
	// NeedMIG and NeedWhole: the GPU's MIG mode is on, or off.
	NeedMIG   = "migMode"
	NeedWhole = "noMIGMode"
)

// MIG is the Args of a step of kind StepMIG.
type MIG struct {
	// PCIBusID is where the GPU sat.
	PCIBusID string `json:"pciBusID"`
	// Profile is the driver's id of the GPU instance profile, Name its name.
	Profile int    `json:"profile"`
	Name    string `json:"name"`
	// Placement is where the instance goes.
	Placement gpu.Placement `json:"placement"`
}

// ParseMIG reads the Args of a step of kind StepMIG.
func ParseMIG(args json.RawMessage) (m MIG, err error) {
	if err := json.Unmarshal(args, &m); err != nil {
		return m, fmt.Errorf("reading the arguments of step %s: %w", StepMIG, err)
	}
	return m, nil
}

// carve adds what MIG devices need: MIG mode, and a step for each one that does not exist yet. A whole GPU, for one claim or for
// several, that is also offered in parts, or was seen in MIG mode, needs that it is not in MIG mode when it is given.
func (p *Plan) carve(layout gpu.Layout) error {
	for i := range p.Results {
		r := &p.Results[i]
		if r.Admin {
			continue
		}
		g := r.Device.Parent()
		switch d := r.Device.(type) {
		case gpu.MIGDevice:
			if d.Static != nil {
				continue
			}
			args, err := json.Marshal(MIG{PCIBusID: g.PCI.BusID, Profile: d.Profile.ID, Name: d.Profile.Name, Placement: d.Placement})
			if err != nil {
				return err
			}
			p.need(Need{Kind: NeedMIG, Target: g.UUID})
			p.Steps = append(p.Steps, Step{Kind: StepMIG, Target: g.UUID, Device: d.Name(), Args: args})
		case gpu.Whole, gpu.TimeSliced:
			if g.MIG != nil && (layout.Of(g).Partitioned() || g.MIG.Mode.Enabled) {
				p.need(Need{Kind: NeedWhole, Target: g.UUID})
			}
		case gpu.Monitor:
		}
	}
	return nil
}

func (p *Plan) need(n Need) {
	if !slices.Contains(p.Needs, n) {
		p.Needs = append(p.Needs, n)
	}
}
