package prepare

import (
	"encoding/json"
	"fmt"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// record returns the record of a plan.
func (p planning) record(plan *claim.Plan) (*checkpoint.Record, error) {
	profile, err := profileOf(plan)
	if err != nil {
		return nil, err
	}
	r := &checkpoint.Record{
		Claim:  checkpoint.Claim{UID: plan.UID, Namespace: plan.Namespace, Name: plan.Name},
		BootID: p.settings.BootID, Writer: p.settings.Writer, State: checkpoint.Intent,
		CDI: checkpoint.CDI{Kind: p.settings.CDIKind}, Profile: profile,
	}
	for i := range plan.Results {
		result := recorded(&plan.Results[i])
		r.Results = append(r.Results, result)
		r.CDI.Devices = append(r.CDI.Devices, deviceName(plan.UID, &result))
	}
	for _, s := range plan.Steps {
		r.Steps = append(r.Steps, checkpoint.Step{Kind: s.Kind, Target: s.Target, Device: string(s.Device), ShareID: s.ShareID, Args: s.Args})
	}
	return r, nil
}

// profileOf is the plan's ProfilerConfig; empty without one.
func profileOf(plan *claim.Plan) (json.RawMessage, error) {
	if plan.Profile == nil {
		return nil, nil
	}
	profile, err := json.Marshal(plan.Profile)
	if err != nil {
		return nil, fmt.Errorf("encoding the profile of claim %s/%s: %w", plan.Namespace, plan.Name, err)
	}
	return profile, nil
}

// recorded is the planned result as the record keeps it.
func recorded(p *claim.Result) checkpoint.Result {
	parent := p.Device.Parent()
	return checkpoint.Result{
		Request: p.Request, Pool: p.Pool, Device: string(p.Device.Name()), ShareID: p.ShareID, Admin: p.Admin,
		Type: p.Device.Type(), GPUUUID: parent.UUID, PCIBusID: parent.PCI.BusID, Consumed: p.Consumed,
		MIG: migOf(p.Device), Share: shareOf(p), MPS: mpsOf(p), Metrics: metricsOf(p), Profiled: p.Profiled,
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

// mpsOf says how a result is used as an MPS client; nil otherwise.
func mpsOf(r *claim.Result) *checkpoint.MPS {
	if r.MPS == nil {
		return nil
	}
	return &checkpoint.MPS{Daemon: r.MPS.Daemon, MemoryMiB: r.MPS.MemoryMiB, ActiveThreadPercentage: r.MPS.ActiveThreadPercentage}
}

// metricsOf is the result's GPUMetricsConfig; nil without one.
func metricsOf(r *claim.Result) *checkpoint.Metrics {
	if r.Metrics == nil {
		return nil
	}
	m := r.Metrics
	return &checkpoint.Metrics{
		Source: m.Source, Sets: m.Sets, Interval: m.Interval.Duration, Labels: m.Labels,
		PerProcess: m.PerProcess, ExposeInContainer: m.ExposeInContainer,
	}
}

// deviceName names a result in the spec. The UUID in it is that of what programs see; of a MIG device that does not exist yet, its
// GPU's.
func deviceName(claimUID string, r *checkpoint.Result) string {
	uuid := string(r.GPUUUID)
	if r.MIG != nil && r.MIG.Identity.UUID != "" {
		uuid = string(r.MIG.Identity.UUID)
	}
	return cdi.DeviceName(claimUID, gpu.DeviceName(r.Device), r.ShareID, r.Admin, uuid)
}
