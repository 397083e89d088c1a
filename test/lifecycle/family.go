package lifecycle

import (
	"context"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/test/null"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// families returns the families of a machine's processes besides the built-in ones.
func (m *Machine) families(faultPoint FaultPoint) []plugin.Family {
	if !m.nullFamily {
		return nil
	}
	return []plugin.Family{{
		Claim: null.Claims{}, Publish: null.Publishes{}, Mode: null.Mode{}, GPUNode: true,
		Steps: func(plugin.AdvertisedDevices) map[string]prepare.Step {
			return map[string]prepare.Step{null.StepKind: null.Step{Marks: marks{m, faultPoint}}}
		},
	}}
}

// modes returns the modes of every GPU besides the configured ones.
func (m *Machine) modes() (all []gpu.Mode) {
	for _, f := range m.families(nil) {
		all = append(all, f.Mode)
	}
	return all
}

// nodeTypes returns the device types whose containers get the device node of the GPU, besides the built-in ones.
func (m *Machine) nodeTypes() (all []gpu.DeviceType) {
	for _, f := range m.families(nil) {
		all = append(all, f.Claim.Type())
	}
	return all
}

// marks sets the marks of null.Step, with fault points: the accounting mode of the GPU.
type marks struct {
	machine    *Machine
	faultPoint FaultPoint
}

// marked is the accounting mode of a marked GPU.
const marked = 1

func (k marks) Mark(ctx context.Context, id gpu.UUID) error {
	return k.set(ctx, "null.Mark", id, marked)
}

func (k marks) Unmark(ctx context.Context, id gpu.UUID) error {
	return k.set(ctx, "null.Unmark", id, 0)
}

func (k marks) set(ctx context.Context, site string, id gpu.UUID, value uint32) error {
	return k.faultPoint(site, func() error { return k.machine.hardware.set(ctx, id, accounting, value) })
}

// effects maps each kind of effect that the machine's processes know to a check of a GPU. The accounting mode is either an effect of tests
// or a mark.
func (m *Machine) effects() map[string]func(g *model.GPUSnapshot) bool {
	if m.nullFamily {
		return map[string]func(g *model.GPUSnapshot) bool{null.StepKind: func(g *model.GPUSnapshot) bool { return g.Accounting }}
	}
	present := map[string]func(g *model.GPUSnapshot) bool{}
	for kind, effect := range Effects {
		present[kind] = effect(m).Present
	}
	return present
}
