package explain

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

// wish is a request or a subrequest of a claim.
type wish struct {
	claim *resourceapi.ResourceClaim
	// name is "gpu" or, of a subrequest, "gpu/small".
	name    string
	request *resourceapi.ExactDeviceRequest
	// class is nil if it does not exist.
	class       *resourceapi.DeviceClass
	expressions []*expression
}

// wishes lists the requests of a claim, each with its alternatives.
func (s *Solver) wishes(m *matcher, claim *resourceapi.ResourceClaim) [][]*wish {
	var all [][]*wish
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly != nil {
			all = append(all, []*wish{s.wish(m, claim, request.Name, request.Exactly)})
			continue
		}
		var alternatives []*wish
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			alternatives = append(alternatives, s.wish(m, claim, request.Name+"/"+sub.Name, exactly(sub)))
		}
		all = append(all, alternatives)
	}
	return all
}

func (s *Solver) wish(m *matcher, claim *resourceapi.ResourceClaim, name string, request *resourceapi.ExactDeviceRequest) *wish {
	w := &wish{claim: claim, name: name, request: request, class: s.Cluster.Classes[request.DeviceClassName]}
	if w.class != nil {
		w.expressions = m.expressionsOf(w.class.Spec.Selectors, "DeviceClass "+w.class.Name)
	}
	w.expressions = append(w.expressions, m.expressionsOf(request.Selectors, "claim "+claim.Name)...)
	return w
}

// exactly converts a subrequest.
func exactly(sub *resourceapi.DeviceSubRequest) *resourceapi.ExactDeviceRequest {
	return &resourceapi.ExactDeviceRequest{
		DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode, Count: sub.Count,
		Tolerations: sub.Tolerations, Capacity: sub.Capacity,
	}
}

// all reports whether the request is for all matching devices.
func (w *wish) all() bool { return w.request.AllocationMode == resourceapi.DeviceAllocationModeAll }

func (w *wish) admin() bool { return w.request.AdminAccess != nil && *w.request.AdminAccess }

// alone returns a claim with only this request, and without constraints.
func (w *wish) alone() *resourceapi.ResourceClaim {
	c := w.claim.DeepCopy()
	c.Spec.Devices = resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "request", Exactly: w.request.DeepCopy()}}}
	return c
}

// reads are everything that the expressions of claims read.
func (s *Solver) reads(m *matcher, claims []*resourceapi.ResourceClaim) clusterview.Reads {
	all := newReads()
	var constraints []resourceapi.DeviceConstraint
	for _, claim := range claims {
		constraints = append(constraints, claim.Spec.Devices.Constraints...)
		for _, alternatives := range s.wishes(m, claim) {
			for _, w := range alternatives {
				for _, e := range w.expressions {
					all.add(e.reads)
				}
			}
		}
	}
	return all.identities(constraints)
}

// single returns the request of a claim for one device without constraints; nil if the claims are others. Pools can be asked one by one for
// it: the device is in one of them.
func single(claims []*resourceapi.ResourceClaim, wishes [][]*wish) *wish {
	if len(claims) != 1 || len(wishes) != 1 || len(wishes[0]) != 1 || len(claims[0].Spec.Devices.Constraints) > 0 ||
		claims[0].Spec.Devices.Requests[0].Exactly == nil {
		return nil
	}
	w := wishes[0][0]
	if w.all() || w.admin() || w.request.Count != 1 || len(w.request.DerivedAttributes) > 0 {
		return nil
	}
	return w
}

// defaulted returns a claim with the defaults of the API server, which a file may lack.
func defaulted(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	fill := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly != nil {
			fill(&request.Exactly.AllocationMode, &request.Exactly.Count)
		}
		for j := range request.FirstAvailable {
			fill(&request.FirstAvailable[j].AllocationMode, &request.FirstAvailable[j].Count)
		}
	}
	return claim
}

// selected returns the devices that the expressions match. The first error is returned with the devices that match without.
func (w *wish) selected(ctx context.Context, m *matcher, devices []device) ([]int, error) {
	var matching []int
	var first error
	for i := range devices {
		matches, err := m.matchesAll(ctx, w.expressions, devices[i])
		if err != nil && first == nil {
			first = err
		}
		if matches {
			matching = append(matching, i)
		}
	}
	return matching, first
}
