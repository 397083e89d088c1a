package claim

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// offers are what a node gives at one moment.
type offers struct {
	source Source
	node   *gpu.Node
	layout gpu.Layout
	// standby: another process may advertise something else by now.
	standby bool
}

// result resolves one of our allocation results.
func (o offers) result(r *resourceapi.DeviceRequestAllocationResult) (*Result, error) {
	device, err := o.device(r)
	if err != nil {
		return nil, err
	}
	admin := r.AdminAccess != nil && *r.AdminAccess
	switch d := device.(type) {
	case gpu.Monitor:
		if !admin {
			return nil, refusal(r, "set adminAccess: true on the request, in a namespace labelled resource.kubernetes.io/admin-access=true",
				"a monitor device only shows GPUs that others use, so it is given with admin access only")
		}
	case gpu.TimeSliced:
		if admin {
			return nil, refusal(r, o.toLook(), "a share is a turn on the GPU, and admin access takes none")
		}
	case gpu.MIGDevice:
		switch {
		case d.Static != nil:
		case admin:
			return nil, refusal(r, o.toLook(), "a MIG slice is made for the claim that owns it, and admin access makes nothing")
		case r.ShareID != nil:
			return nil, gone(r, d.GPU)
		}
	case gpu.Whole:
	}
	resolved := &Result{Request: r.Request, Pool: r.Pool, Admin: admin, Device: device}
	if r.ShareID != nil {
		resolved.ShareID = string(*r.ShareID)
	}
	for name, quantity := range r.ConsumedCapacity {
		if resolved.Consumed == nil {
			resolved.Consumed = map[string]string{}
		}
		resolved.Consumed[string(name)] = quantity.String()
	}
	return resolved, nil
}

// device finds an allocated device among what is on offer.
func (o offers) device(r *resourceapi.DeviceRequestAllocationResult) (gpu.Device, error) {
	if node := o.source.NodeName; r.Pool != node && !strings.HasPrefix(r.Pool, node+"/") {
		return nil, refusal(r, "delete the pod so that it is scheduled anew", "it is in pool %q, which is not of node %s", r.Pool, node)
	}
	if monitor := (gpu.Monitor{}); r.Pool == monitor.Pool(o.source.NodeName) {
		return o.monitor(r, monitor)
	}
	for i := range o.node.GPUs {
		g := &o.node.GPUs[i]
		if !of(r.Device, g) {
			continue
		}
		offer := o.layout.Of(g)
		for _, d := range offer.Devices(g) {
			if string(d.Name()) != r.Device {
				continue
			}
			if pool := offer.Pool(o.source.NodeName, g); pool != r.Pool {
				return nil, o.changed(r, "it was allocated from pool %q, and is in pool %q since the node's configuration changed", r.Pool, pool)
			}
			return d, nil
		}
		return nil, o.notOffered(r, g, offer)
	}
	return nil, o.missing(r)
}

// monitor is the node's monitor device, where it has one.
func (o offers) monitor(r *resourceapi.DeviceRequestAllocationResult, monitor gpu.Monitor) (gpu.Device, error) {
	switch {
	case !o.source.Monitor:
		return nil, o.changed(r, "node %s has no monitor device now: the chart's value monitorDevices is not PerNode", o.source.NodeName)
	case r.Device != string(monitor.Name()):
		return nil, o.changed(r, "pool %q has no such device", r.Pool)
	case len(o.node.GPUs) == 0:
		return nil, o.missing(r)
	}
	return monitor, nil
}

// toLook says how a claim gets to see the GPU.
func (o offers) toLook() string {
	return fmt.Sprintf("request a device of class monitor.%s to look at the GPUs of a node; the chart's value monitorDevices: PerNode makes it",
		o.source.Driver)
}

// of tells whether a device name is of that GPU.
func of(device string, g *gpu.GPU) bool {
	whole := string(gpu.Whole{GPU: g}.Name())
	return device == whole || strings.HasPrefix(device, whole+"-")
}

// notOffered says what a GPU that is there gives instead.
func (o offers) notOffered(r *resourceapi.DeviceRequestAllocationResult, g *gpu.GPU, offer gpu.Offer) error {
	if r.ShareID != nil && strings.Contains(r.Device, "-mig-") {
		return gone(r, g)
	}
	var has []string
	for _, d := range offer.Devices(g) {
		what := string(d.Type())
		if slice, cut := d.(gpu.MIGDevice); cut {
			what = fmt.Sprintf("%s %s", d.Type(), slice.Profile.Name)
		}
		if !slices.Contains(has, what) {
			has = append(has, what)
		}
	}
	why := "the node's configuration, or what is on the GPU, has changed"
	if strings.Contains(r.Device, "-mig-") && !g.Product.MIGCapable {
		why = g.Product.Name + " has no MIG"
	}
	return o.changed(r, "GPU %s does not offer it now: %s; it offers: %s", g.UUID, why, strings.Join(has, ", "))
}

// changed refuses a device that the layout does not have, or not there. The layout of a process on standby may be an old one.
func (o offers) changed(r *resourceapi.DeviceRequestAllocationResult, cause string, args ...any) error {
	if o.standby {
		return passing(r, "wait until the update of the plugin on this node is complete; if this stays, delete the pod so that it is scheduled again",
			cause, args...)
	}
	return refusal(r, "delete the pod so that it is scheduled anew", cause, args...)
}

// gone refuses a share of a MIG device that is not there. Only those that an administrator made are for several claims, so there is none
// that could be made for this one.
func gone(r *resourceapi.DeviceRequestAllocationResult, g *gpu.GPU) error {
	return passing(r, StaticFix, "MIG device %s is not on GPU %s any more", r.Device, g.UUID)
}

// refusal is one that stays as long as the claim is as it is.
func refusal(r *resourceapi.DeviceRequestAllocationResult, fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: r.Device, Cause: fmt.Sprintf(cause, args...), Fix: fix}
}

// passing is a refusal that may go away by itself.
func passing(r *resourceapi.DeviceRequestAllocationResult, fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: r.Device, Cause: fmt.Sprintf(cause, args...), Fix: fix, Transient: true}
}

// missing says why the GPU of an allocated device is not there.
func (o offers) missing(r *resourceapi.DeviceRequestAllocationResult) error {
	node := o.source.NodeName
	if o.node.Driver.Version == "" {
		return passing(r, "install or load the NVIDIA driver on the node", "no NVIDIA driver is loaded on node %s", node)
	}
	for i := range o.node.Faults {
		fault := &o.node.Faults[i]
		if names(r.Device, fault.UUID) {
			return passing(r, "reset the GPU or drain the node", "GPU %s of node %s does not answer: %v", fault.UUID, node, fault.Err)
		}
	}
	return passing(r, "if it does not come back, delete the pod so that it is scheduled anew",
		"node %s does not offer this device now", node)
}

// names tells whether a device name is of that GPU. A GPU that does not answer has no ID: how many digits of its UUID its
// names carry is not known, but they are at least the shortest that a GPU alone would get.
func names(device string, uuid gpu.UUID) bool {
	if uuid == "" {
		return false
	}
	alone := []gpu.GPU{{UUID: uuid}}
	gpu.AssignIDs(alone)
	return strings.HasPrefix(device, string(gpu.Whole{GPU: &alone[0]}.Name()))
}

// exclusive refuses a claim that was given the same part of a GPU twice: the scheduler never does that, and nothing good comes of
// it. Shares of one device are no such parts, but those of one request are on different GPUs.
func (p *Plan) exclusive(driver string) error {
	for i := range p.Results {
		for j := range i {
			r, earlier := &p.Results[i], &p.Results[j]
			if r.Admin || earlier.Admin || r.Device.Parent().UUID != earlier.Device.Parent().UUID {
				continue
			}
			if !gpu.Excludes(r.Device.Use(r.shared()), earlier.Device.Use(earlier.shared())) {
				if beside(r, earlier) && r.Request == earlier.Request {
					return sameGPU(r, driver)
				}
				continue
			}
			what := "its GPU"
			if earlier.Device.Type() == gpu.TypeMIG {
				what = "a part that it needs of GPU"
			}
			return &Refusal{
				Request: r.Request, Device: string(r.Device.Name()), Fix: "delete the claim so that it is allocated anew",
				Cause: fmt.Sprintf("%s %s was given to request %q of the same claim too", what, r.Device.Parent().UUID, earlier.Request),
			}
		}
	}
	return nil
}
