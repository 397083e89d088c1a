package claim

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// shared tells whether a result is one of several shares of its device.
func (r *Result) shared() bool { return r.ShareID != "" && !r.Admin }

// beside tells whether two results are shares of one device.
func beside(a, b *Result) bool {
	return a.shared() && b.shared() && a.Device.Name() == b.Device.Name()
}

// sameGPU refuses a share of a device of which the request has one already. Schedulers of Kubernetes 1.37 never give out that.
func sameGPU(r *Result, driver string) error {
	return &Refusal{
		Request: r.Request, Device: string(r.Device.Name()),
		Cause: fmt.Sprintf("the request was given two shares of GPU %s, which are no more of it than one", r.Device.Parent().UUID),
		Fix:   fmt.Sprintf("add a constraint with distinctAttribute: %s/parentUUID to the claim, and make it anew", driver),
	}
}

// single refuses a request of an extended resource for several devices of which one is a share, where the node's configuration
// wants that. A claim that people write says what it means; a number behind the name of a resource may be meant as more of one GPU.
func (p *Plan) single(rc *resourceapi.ResourceClaim, layout gpu.Layout) error {
	if rc.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	given := map[string]int{}
	for i := range p.Results {
		given[p.Results[i].Request]++
	}
	for i := range p.Results {
		r := &p.Results[i]
		offer := layout.Of(r.Device.Parent())
		if n := given[r.Request]; n > 1 && r.shared() && offer.OneShare {
			return &Refusal{
				Request: r.Request, Device: string(r.Device.Name()),
				Cause: fmt.Sprintf("request for '%s: %d' too large: maximum request size for shared resources is 1", resourceOf(r.Device, offer), n),
				Fix:   "request one, or set failRequestsGreaterThanOne: false in the node's configuration",
			}
		}
	}
	return nil
}

// resourceOf names the extended resource that requests a share of the device.
func resourceOf(d gpu.Device, offer gpu.Offer) string {
	if slice, cut := d.(gpu.MIGDevice); cut {
		if named := offer.MIGResources[slice.Profile.Name]; named != "" {
			return named
		}
		return "nvidia.com/mig-" + strings.ReplaceAll(slice.Profile.Name, "+", ".")
	}
	if offer.TimeSlice != nil && offer.TimeSlice.Resource != "" {
		return offer.TimeSlice.Resource
	}
	return "nvidia.com/gpu"
}
