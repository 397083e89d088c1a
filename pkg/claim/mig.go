package claim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// StepMIG is the kind of the step that makes a MIG device.
const StepMIG = "mig"

// MIG is the Args of a step of kind StepMIG.
type MIG struct {
	// PCIBusID is the PCI address of the GPU.
	PCIBusID string `json:"pciBusID"`
	// Profile is the driver's id of the GPU instance profile, Name its name.
	Profile int    `json:"profile"`
	Name    string `json:"name"`
	// Placement is the place for the instance.
	Placement gpu.Placement `json:"placement"`
}

// ParseMIG reads the Args of a step of kind StepMIG.
func ParseMIG(args json.RawMessage) (m MIG, err error) {
	if err := json.Unmarshal(args, &m); err != nil {
		return m, fmt.Errorf("reading the arguments of step %s: %w", StepMIG, err)
	}
	return m, nil
}

// mig plans MIG devices.
type mig struct{}

// Type is gpu.TypeMIG.
func (mig) Type() gpu.DeviceType { return gpu.TypeMIG }

// profileClass matches the part before the driver's name in the class of a MIG profile.
var profileClass = regexp.MustCompile(`^mig-[1-9][0-9]?g-[0-9]{1,4}gb(-[a-z]+)*$`)

// HasClass knows mig.<driver>, by-capacity.<driver>, whose capacities only MIG devices have, the classes of profiles, and NVIDIA's.
func (mig) HasClass(class, driver string) bool {
	name, ours := strings.CutSuffix(class, "."+driver)
	return class == classOf(gpu.TypeMIG, driver) || class == "by-capacity."+driver || ours && profileClass.MatchString(name) ||
		driver == nvidiaDriver && class == "mig.nvidia.com"
}

// Supports every strategy but time-slicing, and enforced memory, which the hardware isolates.
func (mig) Supports(kind string, config *v1alpha1.GPUConfig) error {
	return refuseStrategy(v1alpha1.StrategyTimeSlicing, kind, config, "a MIG device, which is a partition of its GPU already")
}

// Admit refuses admin access to a device that would be made, and a share of one that is not there: only pre-created ones have shares.
func (mig) Admit(r *Result, driver string) error {
	switch device, ok := r.Device.(gpu.MIGDevice); {
	case ok && device.Static != nil:
		return nil
	case r.Admin:
		return r.refuse(monitorFix(driver), "a MIG device that is made for a claim cannot be requested with adminAccess")
	case r.ShareID != "":
		return gone(r.Request, string(r.Device.Name()), r.Device.Parent())
	}
	return nil
}

// Plan turns the GPU's MIG mode on and makes the device unless it is pre-created. Then it plans the sharing strategy of the claim's
// configuration, which is undone before the device is destroyed.
func (mig) Plan(p *Plan, r *Result, options Options, modes gpu.Modes) error {
	d, ok := r.Device.(gpu.MIGDevice)
	if !ok {
		return nil
	}
	device := MIG{PCIBusID: d.GPU.PCI.BusID, Profile: d.Profile.ID, Name: d.Profile.Name, Placement: d.Placement}
	if d.Static == nil && !r.Admin {
		args, err := json.Marshal(device)
		if err != nil {
			return err
		}
		p.require(Precondition{Kind: PreconditionMIGMode, Target: d.GPU.UUID})
		p.Steps = append(p.Steps, Step{Kind: StepMIG, Target: d.GPU.UUID, Device: d.Name(), Args: args})
	}
	return p.planStrategy(r, options, modes, &device)
}

// Resource is the node's name for the shares of the profile, else the profile's as NVIDIA's device plugin calls it.
func (mig) Resource(d gpu.Device, modes gpu.Modes) string {
	if name := modes.MIGResources[d.ProfileName()]; name != "" {
		return name
	}
	return "nvidia.com/mig-" + strings.ReplaceAll(d.ProfileName(), "+", ".")
}

// Absent knows a share of a pre-created device that is gone, and a GPU without MIG.
func (mig) Absent(r *resourceapi.DeviceRequestAllocationResult, g *gpu.GPU) (cause string, refused error) {
	switch {
	case !strings.Contains(r.Device, "-mig-"):
		return "", nil
	case r.ShareID != nil:
		return "", gone(r.Request, r.Device, g)
	case !g.Product.MIGCapable:
		return g.Product.Name + " has no MIG", nil
	}
	return "", nil
}

// gone refuses a share of a MIG device that is not there. Only pre-created ones are for several claims, so there is none that could be
// made for this one.
func gone(request, device string, g *gpu.GPU) error {
	return &Refusal{
		Request: request, Device: device, Cause: fmt.Sprintf("MIG device %s is not on GPU %s any more", device, g.UUID),
		Fix: StaticFix, Transient: true,
	}
}
