package claim

import (
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Plan lists the work for one claim.
type Plan struct {
	// UID, Namespace and Name are the claim's.
	UID, Namespace, Name string
	// Results are the allocation results of this driver in the claim's order; none when the claim has only others'.
	Results []Result
	// Preconditions are the states of GPUs that the devices require. They are ensured first and never taken back.
	Preconditions []Precondition
	// Steps are the hardware effects in the order in which they are to be made.
	Steps []Step
	// Extensions is the extensions' data of the claim, by kind.
	Extensions map[string]any
}

// Result is one allocation result, resolved against the node.
type Result struct {
	// Request is "<request>" or "<request>/<subrequest>".
	Request string
	// Pool is the pool of the device.
	Pool string
	// ShareID distinguishes the allocations of one device with shares; empty for other devices.
	ShareID string
	// Admin: allocated with admin access; other claims may use the device, and nothing about it is changed.
	Admin bool
	// Device is the allocated device.
	Device gpu.Device
	// Consumed is the capacity taken of a device with shares, as Kubernetes quantities, by names without the driver's domain.
	Consumed map[string]string
	// Tolerations are the taints that the request accepts.
	Tolerations []resourceapi.DeviceToleration
	// Extensions is the extensions' data of the result, by kind.
	Extensions map[string]any
}

// refuse is a refusal of the result that stays as long as the claim is as it is.
func (r *Result) refuse(fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: string(r.Device.Name()), Cause: fmt.Sprintf(cause, args...), Fix: fix}
}

// refuseMendable is a refusal of the result that stays until the configuration of the node or the cluster is changed.
func (r *Result) refuseMendable(fix, cause string, args ...any) error {
	return &Refusal{Request: r.Request, Device: string(r.Device.Name()), Cause: fmt.Sprintf(cause, args...), Fix: fix, Mendable: true}
}

// Step is one hardware effect.
type Step struct {
	// Kind names the step that does it.
	Kind string
	// Target is the physical GPU it works on.
	Target gpu.UUID
	// Device is the allocated device that it makes or sets; empty if it does something else.
	Device gpu.DeviceName
	// ShareID distinguishes the shares of a device of which a claim has several; empty for other devices.
	ShareID string
	// Args is the step's own business.
	Args json.RawMessage
}

// Precondition is a state of a GPU that stays as it is until a claim requires another.
type Precondition struct {
	// Kind is PreconditionMIGMode or PreconditionNoMIGMode.
	Kind string
	// Target is the physical GPU.
	Target gpu.UUID
}

// The kinds of preconditions.
const (
	// PreconditionMIGMode and PreconditionNoMIGMode: the GPU's MIG mode is on, or off.
	PreconditionMIGMode   = "migMode"
	PreconditionNoMIGMode = "noMIGMode"
)

// require adds one to the plan, once.
func (p *Plan) require(n Precondition) {
	if !slices.Contains(p.Preconditions, n) {
		p.Preconditions = append(p.Preconditions, n)
	}
}

// Source is the input of plans besides the claims.
type Source struct {
	// Driver is this driver's name.
	Driver string
	// NodeName is the node's, and the name of the pool of its whole GPUs.
	NodeName string
	// Additional are the devices that the node advertises in addition to its layout.
	Additional gpu.Additional
	// Advertised returns the node's present state and the modes in which its GPUs are advertised; it is called once per plan and the node
	// is never nil. An error says why that is not known yet.
	Advertised func() (*gpu.Node, gpu.Layout, error)
	// Standby reports whether another process may advertise another layout of the node, so that a device that is not advertised here is
	// refused for the moment only. It is called before Advertised; nil: none does.
	Standby func() bool
	// Recent reports whether a claim was allocated so recently that a device which is not advertised now is refused for the moment only:
	// a scheduler that holds a pod at Permit binds it to a device that was advertised before. Nil: no claim was.
	Recent func(rc *resourceapi.ResourceClaim) bool
	// Families plan the results of their types; nil: all families of this package.
	Families []DevicePlanner
	// Extensions plan the claims' requests besides their devices; nil: all extensions of this package.
	Extensions []PlanExtension
}

// Resolve plans an allocated claim. The error is a *Refusal. Results of other drivers are left out.
func (s Source) Resolve(rc *resourceapi.ResourceClaim) (*Plan, error) {
	plan := &Plan{UID: string(rc.UID), Namespace: rc.Namespace, Name: rc.Name}
	if rc.Status.Allocation == nil {
		return nil, &Refusal{Cause: "the claim is not allocated", Fix: "wait for the scheduler", Transient: true}
	}
	devices := rc.Status.Allocation.Devices
	standby := s.Standby != nil && s.Standby()
	node, layout, err := s.Advertised()
	if err != nil {
		return nil, &Refusal{Cause: fmt.Sprintf("what node %s advertises is not known yet: %v", s.NodeName, err), Transient: true, Err: err}
	}
	now := advertised{source: s, node: node, layout: layout, standby: standby, recent: s.Recent != nil && s.Recent(rc)}
	configs, err := s.decode(&devices)
	if err != nil {
		return nil, err
	}
	var families []DevicePlanner // of each result
	for i := range devices.Results {
		result := &devices.Results[i]
		if result.Driver != s.Driver {
			continue
		}
		resolved, family, err := now.result(result)
		if err != nil {
			return nil, err
		}
		plan.Results, families = append(plan.Results, *resolved), append(families, family)
	}
	from := layers{source: s, configs: devices.Config, defaults: s.defaults(rc)}
	options := make([]Options, len(families)) // of each result
	for i, family := range families {
		if options[i], err = configs.merge(from, plan, &plan.Results[i], family); err != nil {
			return nil, err
		}
	}
	for _, stage := range []func() error{
		func() error { return s.nvidiaShares(plan, rc) },
		func() error { return s.oneShare(plan, rc, layout) },
		func() error { return eachExtension(s, func(e Admitting) error { return e.Admit(plan, options) }) },
		func() error { return plan.exclusive(s.Driver) },
		func() error { return s.planResults(plan, options) },
		func() error { return s.plan(plan, options, layout) },
		func() error { return s.planCounters(plan, options, node) },
		func() error {
			return eachExtension(s, func(e Planning) error { return e.Plan(plan, rc, options, from.defaults.undecided[e.Kind()]) })
		},
	} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// planResults lets the extensions plan each result.
func (s Source) planResults(plan *Plan, options []Options) error {
	return eachExtension(s, func(e ResultPlanning) error {
		for i := range plan.Results {
			if err := e.PlanResult(plan, &plan.Results[i], options[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// plan adds the steps that the results need, family by family.
func (s Source) plan(plan *Plan, options []Options, layout gpu.Layout) error {
	for _, family := range s.families() {
		for i := range plan.Results {
			r := &plan.Results[i]
			if r.Device.Type() != family.Type() {
				continue
			}
			if err := family.Plan(plan, r, options[i], layout.Of(r.Device.Parent())); err != nil {
				return err
			}
		}
	}
	return nil
}

// AllocationKey is one allocation result of this driver as the scheduler wrote it, comparable.
type AllocationKey struct {
	// Request is "<request>" or "<request>/<subrequest>".
	Request string
	// Pool and Device name the allocated device.
	Pool, Device string
	// ShareID distinguishes the allocations of one shareable device; empty for other devices.
	ShareID string
	// Admin: given with admin access.
	Admin bool
}

// AllocationKeys lists the claim's allocation results of this driver in the claim's order. A claim that was deallocated and
// allocated again keeps its UID: its earlier answer holds only as long as these are the same.
func (s Source) AllocationKeys(rc *resourceapi.ResourceClaim) []AllocationKey {
	if rc.Status.Allocation == nil {
		return nil
	}
	var keys []AllocationKey
	for i := range rc.Status.Allocation.Devices.Results {
		r := &rc.Status.Allocation.Devices.Results[i]
		if r.Driver != s.Driver {
			continue
		}
		a := AllocationKey{Request: r.Request, Pool: r.Pool, Device: r.Device, Admin: r.AdminAccess != nil && *r.AdminAccess}
		if r.ShareID != nil {
			a.ShareID = string(*r.ShareID)
		}
		keys = append(keys, a)
	}
	return keys
}
