package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// MIGDevice is a MIG device by its GPU's ordinal, the driver's id of its profile and its first memory slice.
type MIGDevice struct {
	GPU, Profile, Start int
	// Bare: an administrator created the GPU instance without a compute instance.
	Bare bool `json:",omitempty"`
}

// slot is the placement of a GPU instance.
type slot struct {
	gpu gpu.UUID
	at  gpu.Placement
}

// migState is the MIG state of a machine.
type migState struct {
	// layout advertises each GPU with MIG as a whole, as shares and in every profile.
	layout gpu.Layout
	// intervals are the intervals of time-sliced GPUs in the node's configuration; the default without an entry.
	intervals map[gpu.UUID]gpu.Interval
	// static are the instances that an administrator created.
	static map[slot]model.MIGDeviceSnapshot
	// gone are static MIG devices that were lost with the driver in this boot.
	gone map[gpu.MIGUUID]bool
	// mps is the MPS service; nil without one.
	mps *mpsService
}

// withSharedGPUs also advertises all GPUs in time-sliced shares, so that they have intervals.
func (m *Machine) withSharedGPUs() gpu.Layout {
	layout := gpu.Layout{}
	for _, id := range m.gpus {
		modes, partitioned := m.parts.layout[id]
		if !partitioned {
			modes = gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 3, ShareName: "shared"}}
		}
		layout[id] = modes
	}
	return layout
}

// restart simulates a reboot, which instances and control daemons do not survive.
func (p *migState) restart() {
	p.static, p.gone = nil, nil
	p.mps.restart()
}

// mixedNode returns a node whose GPUs with the ordinals 3 and 4 support MIG; more GPUs without MIG follow.
func mixedNode(more int) model.Spec {
	return model.Spec{Name: NodeName, Boards: slices.Concat(
		slices.Repeat([]string{"l40s"}, 3), slices.Repeat([]string{"h100-80"}, 2), slices.Repeat([]string{"l40s"}, more),
	)}
}

// everyProfile returns a layout in which GPUs with MIG are advertised in all possible ways.
func everyProfile(node *model.Node) gpu.Layout {
	layout := gpu.Layout{}
	for i, board := range node.Boards() {
		advertised := gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 3, ShareName: "shared"}}
		for _, profile := range board.MIG.Profiles {
			advertised.MIG = append(advertised.MIG, profile.Name)
		}
		if board.MIG.Capable() {
			layout[gpu.UUID(node.Identities()[i].UUID)] = advertised
		}
	}
	return layout
}

// migDeviceName returns the name of a MIG device.
func (m *Machine) migDeviceName(s MIGDevice) string {
	return fmt.Sprintf("%s-mig-%d-%d", m.device(s.GPU), s.Profile, s.Start)
}

// allocate calls Allocate with the pools of the devices: each GPU with MIG is a separate pool.
func (m *Machine) allocate(rc *resourceapi.ResourceClaim, devices ...string) *resourceapi.ResourceClaim {
	rc = Allocate(rc, devices...)
	for i := range rc.Status.Allocation.Devices.Results {
		result := &rc.Status.Allocation.Devices.Results[i]
		if result.Pool != NodeName {
			continue
		}
		for ordinal, id := range m.gpus {
			if name := m.device(ordinal); m.parts.layout.Of(&gpu.GPU{UUID: id}).Partitioned() && strings.HasPrefix(result.Device, name) {
				result.Pool = NodeName + "/" + name
			}
		}
	}
	return rc
}

// createStatic creates a MIG device like an administrator.
func (m *Machine) createStatic(ctx context.Context, s MIGDevice) error {
	session, handle, _, err := modelled{m.Node}.open(ctx, m.gpus[s.GPU])
	if err != nil {
		return err
	}
	if activation, err := session.SetMIGMode(ctx, handle, true, true); err != nil || activation != nil {
		return errors.Join(err, activation)
	}
	profile, err := m.profile(s)
	if err != nil {
		return err
	}
	at := model.Placement{Start: uint32(s.Start), Size: profile.Size}
	instance, err := session.CreateGPUInstance(ctx, handle, profile.ID, &at, true)
	if err != nil {
		return err
	}
	if whole := profile.ComputeProfiles(); !s.Bare {
		if _, err := session.CreateComputeInstance(ctx, instance, whole[len(whole)-1].ID, true); err != nil {
			return err
		}
	}
	if m.parts.static == nil {
		m.parts.static = map[slot]model.MIGDeviceSnapshot{}
	}
	where := slot{m.gpus[s.GPU], gpu.Placement{Start: s.Start, Size: int(profile.Size)}}
	m.parts.static[where] = m.instances()[where]
	return nil
}

func (m *Machine) profile(s MIGDevice) (model.MIGProfile, error) {
	profiles := m.Node.Boards()[s.GPU].MIG.Profiles
	i := slices.IndexFunc(profiles, func(p model.MIGProfile) bool { return int(p.ID) == s.Profile })
	if i < 0 {
		return model.MIGProfile{}, fmt.Errorf("GPU %d does not support profile %d", s.GPU, s.Profile)
	}
	return profiles[i], nil
}

// instances returns all GPU instances.
func (m *Machine) instances() map[slot]model.MIGDeviceSnapshot {
	found := map[slot]model.MIGDeviceSnapshot{}
	for _, g := range m.Node.GPUs() {
		for _, d := range g.MIGDevices {
			found[slot{gpu.UUID(g.UUID), gpu.Placement{Start: int(d.Placement.Start), Size: int(d.Placement.Size)}}] = d
		}
	}
	return found
}

// reloadDriver unloads the driver and loads it again in the same boot: all instances are lost without notice.
func (m *Machine) reloadDriver() error {
	gone := map[gpu.MIGUUID]bool{}
	for _, d := range m.parts.static {
		gone[gpu.MIGUUID(d.UUID)] = true
	}
	m.parts.static, m.parts.gone = nil, gone
	return m.reload()
}

// instancesAreRecorded checks that each GPU instance is either static and unchanged, or in a record. The results of a prepared claim must
// exist, and a GPU that is prepared as a whole must not be in MIG mode.
func (m *Machine) instancesAreRecorded(records map[string]*checkpoint.Record) error {
	named, err := m.named(records)
	if err != nil {
		return err
	}
	there := m.instances()
	for at, d := range there {
		was, static := m.parts.static[at]
		switch {
		case static && !sameInstance(was, d):
			return fmt.Errorf("the administrator made %+v at %v of GPU %s, and it is %+v", was, at.at, at.gpu, d)
		case !static && named[at] == nil:
			return fmt.Errorf("GPU instance %d is at %v of GPU %s, and no record has it", d.GPUInstance, at.at, at.gpu)
		}
	}
	for at, was := range m.parts.static {
		if _, still := there[at]; !still {
			return fmt.Errorf("the administrator made %+v at %v of GPU %s, and it is gone", was, at.at, at.gpu)
		}
	}
	for _, r := range records {
		if r.State == checkpoint.Done && r.BootID == m.BootID() {
			if err := m.resultsExist(r, there); err != nil {
				return fmt.Errorf("claim %s was prepared: %w", r.Claim.UID, err)
			}
		}
	}
	return nil
}

// named maps instances to the records of this boot that contain them.
func (m *Machine) named(records map[string]*checkpoint.Record) (map[slot]*checkpoint.Record, error) {
	named := map[slot]*checkpoint.Record{}
	for _, r := range records {
		for i := range r.Steps {
			if r.Steps[i].Kind != claim.StepMIG || r.BootID != m.BootID() {
				continue
			}
			args, err := claim.ParseMIG(r.Steps[i].Args)
			if err != nil {
				return nil, err
			}
			named[slot{r.Steps[i].Target, args.Placement}] = r
		}
	}
	return named, nil
}

// resultsExist checks that the results of a record exist.
func (m *Machine) resultsExist(r *checkpoint.Record, there map[slot]model.MIGDeviceSnapshot) error {
	for i := range r.Results {
		result := &r.Results[i]
		if result.MIG == nil {
			if (result.Type == gpu.TypeGPU || result.Type == gpu.TypeTimeSlice) && m.inMIGMode(result.GPUUUID) {
				return fmt.Errorf("GPU %s is prepared as a whole or in shares, and is in MIG mode", result.GPUUUID)
			}
			continue
		}
		id := result.MIG.Identity
		d, still := there[slot{result.GPUUUID, result.MIG.Placement}]
		right := still && d.UUID == string(id.UUID) && int(d.GPUInstance) == id.GPUInstance &&
			d.ComputeInstance != nil && int(*d.ComputeInstance) == id.ComputeInstance
		if !right && !m.lostWithDriver(r, result) {
			return fmt.Errorf("its MIG device is %+v, and at %v of GPU %s there is %+v", id, result.MIG.Placement, result.GPUUUID, d)
		}
	}
	return nil
}

// lostWithDriver reports whether a MIG device was lost with the driver, which was loaded again since. UUIDs do not show it, because a
// recreated device gets the same.
func (m *Machine) lostWithDriver(r *checkpoint.Record, result *checkpoint.Result) bool {
	for i := range r.Steps {
		step := &r.Steps[i]
		if step.Kind != claim.StepMIG || step.Target != result.GPUUUID || step.Device != result.Device {
			continue
		}
		var made struct{ Load string }
		err := json.Unmarshal(step.Made, &made)
		return err == nil && made.Load != m.host.DriverLoad()
	}
	return m.parts.gone[result.MIG.Identity.UUID]
}

func (m *Machine) inMIGMode(id gpu.UUID) bool {
	return slices.ContainsFunc(m.Node.GPUs(), func(g model.GPUSnapshot) bool { return g.UUID == string(id) && g.MIG })
}

// sameInstance reports whether a and b are the same instance, or identical ones of which one was created again.
func sameInstance(a, b model.MIGDeviceSnapshot) bool {
	return a.UUID == b.UUID && a.GPUInstance == b.GPUInstance && a.Profile == b.Profile
}
