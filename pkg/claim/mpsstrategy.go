package claim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	mebibyte = 1 << 20
	// defaultShmBytes is the size of the /dev/shm of MPS clients if the node's configuration sets none for the GPU.
	defaultShmBytes = 1 << 30
)

const (
	// cooperative is why limits of MPS are not enforced.
	cooperative = "the memory limits of MPS are cooperative, as programs can lift them"
	// adminMPS says why a claim with admin access gets no control daemon.
	adminMPS = "strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim"
	// takeOutMPS is the advice if a device cannot be used with MPS.
	takeOutMPS = "take strategy MPS out of the claim's configuration"
)

// tooOldForMPS says why a GPU does not support MPS.
func tooOldForMPS(g *gpu.GPU) string {
	return fmt.Sprintf("a GPU of compute capability %s (%s) cannot be shared with MPS: that requires 7.0 (Volta) or later",
		g.Product.ComputeCapability, g.Product.Name)
}

// mps are the settings of strategy MPS; nil without that strategy.
func (o Options) mps() *v1alpha1.MPS {
	if o.GPU == nil || o.GPU.Sharing == nil || o.GPU.Sharing.Uses() != v1alpha1.StrategyMPS {
		return nil
	}
	return cmp.Or(o.GPU.Sharing.MPS, &v1alpha1.MPS{})
}

// limitMemory is the configuration with another memory limit of strategy MPS.
func limitMemory(c *v1alpha1.GPUConfig, limit *resource.Quantity) (*v1alpha1.GPUConfig, error) {
	return v1alpha1.Merge(c, &v1alpha1.GPUConfig{
		TypeMeta: c.TypeMeta, Sharing: &v1alpha1.Sharing{MPS: &v1alpha1.MPS{MemoryLimit: limit}},
	}, v1alpha1.FromClass)
}

// unenforced names the merged options that no device can enforce.
func (o Options) unenforced() error {
	if o.mps() != nil && enforcesMemory(o.GPU) {
		return errors.New("enforceMemory is not supported with strategy MPS: " + cooperative)
	}
	return nil
}

// usesMPS reports whether a result is used with MPS.
func (r *Result) usesMPS(options Options) bool {
	return !r.Admin && (r.Device.Type() == gpu.TypeMPS || options.mps() != nil)
}

// throughServer reports whether processes use the device of a planned result through a server process, as MPS clients do.
func (r *Result) throughServer() bool { return r.Extensions[KindMPS] != nil }

// KindMPS is the kind of the extension that has results use their device as MPS clients. Their data is an MPSUse.
const KindMPS = "mps"

// MPSExtension bounds the uses of MPS. The family of the device adds the step by which a control daemon serves it.
type MPSExtension struct{}

// Kind is KindMPS.
func (MPSExtension) Kind() string { return KindMPS }

// Admit refuses a request with several devices that are used with MPS.
func (MPSExtension) Admit(p *Plan, options []Options) error {
	count := map[string]int{}
	for i := range p.Results {
		count[p.Results[i].Request]++
	}
	for i := range p.Results {
		r := &p.Results[i]
		if n := count[r.Request]; n > 1 && r.usesMPS(options[i]) {
			return r.refuse(fixCount, "the request was allocated %d devices, and %s", n, onePerContainer)
		}
	}
	return nil
}

// Validate refuses several devices, and limits of memory that are not enforced.
func (MPSExtension) Validate(merged Options, _ func() (Options, error), count int64) error {
	if merged.mps() != nil && count > 1 {
		return severalWithMPS(count)
	}
	return merged.unenforced()
}

// ForbiddenForAdmin forbids strategy MPS.
func (MPSExtension) ForbiddenForAdmin(merged Options) error {
	if merged.mps() != nil {
		return errors.New(adminMPS)
	}
	return nil
}

const (
	// onePerContainer is why a request for MPS is for one device.
	onePerContainer = "a container can use only one with MPS: its processes connect to one MPS control daemon, which serves one GPU"
	// fixCount is the advice if a request for MPS is for several devices.
	fixCount = "set count: 1, and add a request for each container that is to have another GPU"
)

// severalWithMPS refuses a request for several devices that are to be used with MPS when it is written.
func severalWithMPS(count int64) error {
	return fmt.Errorf("count must be 1, got %d: %s; add a request for each container that is to have another GPU", count, onePerContainer)
}

// planStrategy starts a separate control daemon for a device that is exclusive to the claim, if the options select strategy MPS. device is
// the MIG device that it serves, nil for a GPU.
func (p *Plan) planStrategy(r *Result, options Options, modes gpu.Modes, device *MIG) error {
	settings := options.mps()
	if settings == nil {
		return nil
	}
	g, memory := r.Device.Parent(), int64(min(r.Device.Capacity().MemoryBytes, math.MaxInt64))
	use := MPSUse{Daemon: gpu.MPSDaemonOf(r.Device)}
	if settings.MemoryLimit != nil {
		use.MemoryMiB = settings.MemoryLimit.Value() / mebibyte
	}
	if settings.ActiveThreadPercentage != nil {
		use.ActiveThreadPercentage = int(*settings.ActiveThreadPercentage)
	}
	switch enforced := options.unenforced(); {
	case r.Admin:
		return r.refuse(takeOutMPS, adminMPS)
	case enforced != nil:
		return r.refuse("take one of them out", "%v", enforced)
	case r.shared():
		return r.refuse(takeOutMPS, "the device is shared with other claims by time-slicing, and strategy MPS requires a device for one claim")
	case !volta(g):
		return r.refuse(takeOutMPS, "%s", tooOldForMPS(g))
	case memory > 0 && use.MemoryMiB > memory/mebibyte:
		return r.refuse("lower the limit", "the memory limit %s is more than the %s of the device", settings.MemoryLimit, binary(memory))
	}
	shm := int64(defaultShmBytes)
	if modes.MPS != nil {
		shm = cmp.Or(modes.MPS.ShmBytes, shm)
	}
	return p.serve(r, MPS{MPSUse: use, MIG: device, Default: MPSDefaults{
		MemoryMiB: use.MemoryMiB, ActiveThreadPercentage: use.ActiveThreadPercentage, ShmBytes: shm,
	}})
}

// serve adds the step by which the control daemon serves the result.
func (p *Plan) serve(r *Result, args MPS) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	r.Extend(KindMPS, &args.MPSUse)
	p.Steps = append(p.Steps, Step{Kind: StepMPS, Target: r.Device.Parent().UUID, Device: r.Device.Name(), ShareID: r.ShareID, Args: raw})
	return nil
}
