package plugin

import (
	"maps"
	"slices"

	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/extension"
	"github.com/prism-gpu/prism/pkg/plugin/mig"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// Family contains the parts of the stages for the devices of one type.
type Family struct {
	// Claim plans the devices of claims, Publish publishes devices. Both return the type of the family.
	Claim   claim.DevicePlanner
	Publish publish.DevicePublisher
	// Mode advertises the devices on every GPU; nil if the node's configuration decides that.
	Mode gpu.Mode
	// Steps returns the steps that Claim plans, by kind, for a node with these advertised devices; nil for none.
	Steps func(advertised AdvertisedDevices) map[string]prepare.Step
	// GPUNode: containers get the device node of the GPU and the edits of steps. For built-in families pkg/plugin/cdi decides instead.
	GPUNode bool
}

// families are in the order in which the scheduler gets their devices, and in which the steps of a claim are made.
type families []Family

// families are the built-in families of devices and the families of the adapters.
func (m *Machine) families() families {
	steps := map[gpu.DeviceType]stepsOf{gpu.TypeTimeSlice: intervalSteps(m), gpu.TypeMIG: migSteps(m)}
	var all families
	for _, planned := range claim.Families() {
		all = append(all, builtIn(planned, steps[planned.Type()]))
	}
	return append(all, m.adapters.Families...)
}

// stepsOf returns the steps of a family, by kind, for a node that advertises that.
type stepsOf = func(advertised AdvertisedDevices) map[string]prepare.Step

func intervalSteps(m *Machine) stepsOf {
	return func(AdvertisedDevices) map[string]prepare.Step {
		return map[string]prepare.Step{claim.StepInterval: timeslice.Step{Tool: m.Tool, Store: m.State.Intervals}}
	}
}

func migSteps(m *Machine) stepsOf {
	return func(AdvertisedDevices) map[string]prepare.Step {
		return map[string]prepare.Step{claim.StepMIG: mig.Step{Driver: m.Inventory.MIGDriver, Load: m.adapters.Host.DriverLoad}}
	}
}

// builtIn combines a family in pkg/claim with the one of its type in pkg/plugin/publish and with its steps.
func builtIn(planned claim.DevicePlanner, steps stepsOf) Family {
	published := publish.Families()
	at := slices.IndexFunc(published, func(f publish.DevicePublisher) bool { return f.Type() == planned.Type() })
	return Family{Claim: planned, Publish: published[at], Steps: steps}
}

// claim returns the families that plan claims.
func (all families) claim() (list []claim.DevicePlanner) {
	for _, f := range all {
		list = append(list, f.Claim)
	}
	return list
}

// publish returns the families that publish devices.
func (all families) publish() (list []publish.DevicePublisher) {
	for _, f := range all {
		list = append(list, f.Publish)
	}
	return list
}

// modes are the modes of every GPU besides the modes in the node's configuration.
func (all families) modes() (list []gpu.Mode) {
	for _, f := range all {
		if f.Mode != nil {
			list = append(list, f.Mode)
		}
	}
	return list
}

// steps are the steps of all families, by kind.
func (all families) steps(advertised AdvertisedDevices) map[string]prepare.Step {
	byKind := map[string]prepare.Step{}
	for _, f := range all {
		if f.Steps != nil {
			maps.Copy(byKind, f.Steps(advertised))
		}
	}
	return byKind
}

// withSteps are the steps of all families and extensions, by kind.
func (all families) withSteps(extensions prepare.Extensions, advertised AdvertisedDevices, recorder events.Recorder) map[string]prepare.Step {
	byKind := all.steps(advertised)
	for _, e := range extension.All[extension.Stepper](extensions) {
		maps.Copy(byKind, e.Steps(advertised.Now, recorder))
	}
	return byKind
}

// gpuNodes are the types of devices whose containers get the device node of the GPU.
func (all families) gpuNodes() (list []gpu.DeviceType) {
	for _, f := range all {
		if f.GPUNode {
			list = append(list, f.Claim.Type())
		}
	}
	return list
}
