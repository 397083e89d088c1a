package prepare

import (
	"fmt"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// record returns the record of a plan.
func (p planning) record(plan *claim.Plan) (*checkpoint.Record, error) {
	r := &checkpoint.Record{
		Claim:  checkpoint.Claim{UID: plan.UID, Namespace: plan.Namespace, Name: plan.Name},
		BootID: p.options.BootID, Writer: p.options.Writer, State: checkpoint.Intent,
		CDI: checkpoint.CDI{Kind: p.options.CDIKind},
	}
	if err := keep(&r.Extensions, plan.Extensions); err != nil {
		return nil, fmt.Errorf("recording claim %s/%s: %w", plan.Namespace, plan.Name, err)
	}
	for i := range plan.Results {
		result := recorded(&plan.Results[i])
		if err := keep(&result.Extensions, plan.Results[i].Extensions); err != nil {
			return nil, fmt.Errorf("recording claim %s/%s: %w", plan.Namespace, plan.Name, err)
		}
		r.Results = append(r.Results, result)
		r.CDI.Devices = append(r.CDI.Devices, deviceName(plan.UID, &result))
	}
	for _, s := range plan.Steps {
		r.Steps = append(r.Steps, checkpoint.Step{Kind: s.Kind, Target: s.Target, Device: string(s.Device), ShareID: s.ShareID, Args: s.Args})
	}
	return r, nil
}

// keep encodes the data that extensions have planned.
func keep(kept *checkpoint.Extensions, planned map[string]any) error {
	for kind, data := range planned {
		if err := kept.Set(kind, data); err != nil {
			return err
		}
	}
	return nil
}

// recorded is the planned result as the record keeps it.
func recorded(p *claim.Result) checkpoint.Result {
	parent := p.Device.Parent()
	return checkpoint.Result{
		Request: p.Request, Pool: p.Pool, Device: string(p.Device.Name()), ShareID: p.ShareID, Admin: p.Admin,
		Type: p.Device.Type(), GPUUUID: parent.UUID, PCIBusID: parent.PCI.BusID, Consumed: p.Consumed,
		MIG: migOf(p.Device), Share: shareOf(p),
	}
}

// migOf identifies a MIG device; nil for another device.
func migOf(d gpu.Device) *checkpoint.MIG {
	device, ok := d.(gpu.MIGDevice)
	if !ok {
		return nil
	}
	m := &checkpoint.MIG{Profile: device.Profile.ID, Name: device.Profile.Name, Placement: device.Placement}
	if device.Static != nil {
		m.Static, m.Identity = true, *device.Static
	}
	return m
}

// shareOf describes the shares that a result is one of; nil for a device that is exclusive, or only monitored.
func shareOf(r *claim.Result) *checkpoint.Share {
	shares := r.Device.Shares()
	if r.Admin || !shares.Shared() {
		return nil
	}
	return &checkpoint.Share{Replicas: shares.Count, Name: shares.Name}
}

// deviceName names a result in the spec. It contains the UUID of the device that programs see, or the GPU's UUID for a MIG device that does
// not exist yet.
func deviceName(claimUID string, r *checkpoint.Result) string {
	uuid := string(r.GPUUUID)
	if r.MIG != nil && r.MIG.Identity.UUID != "" {
		uuid = string(r.MIG.Identity.UUID)
	}
	return cdi.DeviceName(claimUID, gpu.DeviceName(r.Device), r.ShareID, r.Admin, uuid)
}
