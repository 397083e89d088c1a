package claim

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// exclusive refuses a claim with two devices that exclude each other: the scheduler never allocates such pairs. Two shares of one device
// do not exclude each other, but the shares of one request must be on different GPUs.
func (p *Plan) exclusive(driver string) error {
	for i := range p.Results {
		for j := range i {
			r, earlier := &p.Results[i], &p.Results[j]
			if r.Admin || earlier.Admin || r.Device.Parent().UUID != earlier.Device.Parent().UUID {
				continue
			}
			if !gpu.Excludes(r.Device.Use(r.shared()), earlier.Device.Use(earlier.shared())) {
				if sharesOfOne(r, earlier) && r.Request == earlier.Request {
					return sameGPU(r, driver)
				}
				continue
			}
			return r.refuse("delete the claim so that it is allocated again", "%s was also allocated to request %q of the same claim",
				earlier.Device.Use(false).On(r.Device.Parent().UUID), earlier.Request)
		}
	}
	return nil
}

// shared reports whether a result is one of several shares of its device.
func (r *Result) shared() bool { return r.ShareID != "" && !r.Admin }

// sharesOfOne reports whether two results are shares of one device.
func sharesOfOne(a, b *Result) bool {
	return a.shared() && b.shared() && a.Device.Name() == b.Device.Name()
}

// sameGPU refuses a share of a device of which the request has one already. Schedulers of Kubernetes 1.37 never allocate that.
func sameGPU(r *Result, driver string) error {
	return r.refuse(fmt.Sprintf("add a constraint with distinctAttribute: %s/parentUUID to the claim, and recreate it", driver),
		"the request was allocated two shares of GPU %s, which are no more of it than one", r.Device.Parent().UUID)
}

// oneShare refuses a request of an extended resource for several devices of which one is a share, if the node's configuration requires
// that. A claim that people write is explicit; a number behind the name of a resource may be meant as more of one GPU.
func (s Source) oneShare(p *Plan, rc *resourceapi.ResourceClaim, layout gpu.Layout) error {
	if rc.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	count := map[string]int{}
	for i := range p.Results {
		count[p.Results[i].Request]++
	}
	for i := range p.Results {
		r := &p.Results[i]
		modes := layout.Of(r.Device.Parent())
		if n := count[r.Request]; n > 1 && r.shared() && modes.OneShare {
			return r.refuseMendable("request one, or set failRequestsGreaterThanOne: false in the node's configuration",
				"request for '%s: %d' too large: maximum request size for shared resources is 1",
				s.family(r.Device.Type()).Resource(r.Device, modes), n)
		}
	}
	return nil
}
