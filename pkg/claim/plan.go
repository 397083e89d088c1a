package claim

import (
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Plan is what to do for one claim.
type Plan struct {
	// UID, Namespace and Name are the claim's.
	UID, Namespace, Name string
	// Results are the allocation results of this driver in the claim's order; none when the claim has only others'.
	Results []Result
	// Steps are the hardware effects in the order in which they are to be made.
	Steps []Step
}

// Result is one allocation result, resolved against the node.
type Result struct {
	// Request is "<request>" or "<request>/<subrequest>".
	Request string
	// Pool is the pool of the device.
	Pool string
	// ShareID tells the allocations of one shareable device apart; empty for other devices.
	ShareID string
	// Admin: given with admin access; the device may be in use by others and nothing about it is changed.
	Admin bool
	// Device is what was allocated.
	Device gpu.Device
	// Consumed is the capacity taken of a shareable device, as Kubernetes quantities.
	Consumed map[string]string
}

// Step is one hardware effect.
type Step struct {
	// Kind names the step that does it.
	Kind string
	// Target is the physical GPU it works on.
	Target gpu.UUID
	// Args is the step's own business.
	Args json.RawMessage
}

// Source is what a plan is made against.
type Source struct {
	// Driver is this driver's name.
	Driver string
	// NodeName is the node's, and the name of its pool.
	NodeName string
	// Node says what the node has now; it is asked once per plan and never answers nil.
	Node func() *gpu.Node
}

// Resolve plans an allocated claim. The error is a *Refusal. Results of other drivers are none of its business.
func (s Source) Resolve(rc *resourceapi.ResourceClaim) (*Plan, error) {
	plan := &Plan{UID: string(rc.UID), Namespace: rc.Namespace, Name: rc.Name}
	if rc.Status.Allocation == nil {
		return nil, &Refusal{Cause: "the claim is not allocated", Fix: "wait for the scheduler", Transient: true}
	}
	devices := rc.Status.Allocation.Devices
	node := s.Node()
	options, err := s.decode(&devices)
	if err != nil {
		return nil, err
	}
	for i := range devices.Results {
		result := &devices.Results[i]
		if result.Driver != s.Driver {
			continue
		}
		resolved, err := s.result(node, result)
		if err != nil {
			return nil, err
		}
		if err := options.allow(devices.Config, result); err != nil {
			return nil, err
		}
		plan.Results = append(plan.Results, *resolved)
	}
	if err := plan.exclusive(); err != nil {
		return nil, err
	}
	return plan, nil
}

// Allotment is one allocation result of this driver as the scheduler wrote it, comparable.
type Allotment struct {
	// Request is "<request>" or "<request>/<subrequest>".
	Request string
	// Pool and Device name what was allocated.
	Pool, Device string
	// ShareID tells the allocations of one shareable device apart; empty for other devices.
	ShareID string
	// Admin: given with admin access.
	Admin bool
}

// Allotments lists the claim's allocation results of this driver in the claim's order. A claim that was deallocated and
// allocated anew keeps its UID: its earlier answer holds only as long as these are the same.
func (s Source) Allotments(rc *resourceapi.ResourceClaim) []Allotment {
	if rc.Status.Allocation == nil {
		return nil
	}
	var allotments []Allotment
	for i := range rc.Status.Allocation.Devices.Results {
		r := &rc.Status.Allocation.Devices.Results[i]
		if r.Driver != s.Driver {
			continue
		}
		a := Allotment{Request: r.Request, Pool: r.Pool, Device: r.Device, Admin: r.AdminAccess != nil && *r.AdminAccess}
		if r.ShareID != nil {
			a.ShareID = string(*r.ShareID)
		}
		allotments = append(allotments, a)
	}
	return allotments
}

// result resolves one of our allocation results.
func (s Source) result(node *gpu.Node, r *resourceapi.DeviceRequestAllocationResult) (*Result, error) {
	refuse := func(transient bool, fix, cause string, args ...any) error {
		return &Refusal{
			Request: r.Request, Device: r.Device, Cause: fmt.Sprintf(cause, args...), Fix: fix, Transient: transient,
		}
	}
	if r.Pool != s.NodeName {
		return nil, refuse(false, "delete the pod so that it is scheduled anew", "it is in pool %q, and node %s serves only pool %q",
			r.Pool, s.NodeName, s.NodeName)
	}
	device, ok := node.Device(gpu.DeviceName(r.Device))
	if !ok {
		return nil, s.missing(node, r, refuse)
	}
	admin := r.AdminAccess != nil && *r.AdminAccess
	switch device.(type) {
	case gpu.Monitor:
		if !admin {
			return nil, refuse(false, "set adminAccess: true on the request, in a namespace labelled resource.kubernetes.io/admin-access=true",
				"a monitor device only shows a GPU that others use, so it is given with admin access only")
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

// missing says why the node does not offer an allocated device.
func (s Source) missing(node *gpu.Node, r *resourceapi.DeviceRequestAllocationResult, refuse func(bool, string, string, ...any) error) error {
	if node.Driver.Version == "" {
		return refuse(true, "install or load the NVIDIA driver on the node", "no NVIDIA driver is loaded on node %s", s.NodeName)
	}
	for i := range node.Faults {
		fault := &node.Faults[i]
		if names(r.Device, fault.UUID) {
			return refuse(true, "reset the GPU or drain the node", "GPU %s of node %s does not answer: %v", fault.UUID, s.NodeName, fault.Err)
		}
	}
	return refuse(true, "if it does not come back, delete the pod so that it is scheduled anew",
		"node %s does not offer this device now", s.NodeName)
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

// exclusive refuses a claim that was given one GPU twice: the scheduler never does that, and nothing good comes of it.
func (p *Plan) exclusive() error {
	owner := map[gpu.UUID]string{}
	for i := range p.Results {
		r := &p.Results[i]
		if r.Admin {
			continue
		}
		uuid := r.Device.Parent().UUID
		if first, taken := owner[uuid]; taken {
			return &Refusal{
				Request: r.Request, Device: string(r.Device.Name()), Fix: "delete the claim so that it is allocated anew",
				Cause: fmt.Sprintf("its GPU %s was given to request %q of the same claim too", uuid, first),
			}
		}
		owner[uuid] = r.Request
	}
	return nil
}
