package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// board is a GPU whose facts were read; within a session they do not change, but for how it is partitioned.
type board struct {
	device   nvml.Device
	facts    gpu.GPU
	profiles []profile
	// mode is whether the MIG mode was on when handle and minor number were read.
	mode bool
	// incomplete: a fact is missing that the driver may report later.
	incomplete bool
}

// GPUs lists the GPUs of the node in the order of their index. Each that does not answer is a fault and hides no other; the
// error is only for the list itself. IDs are not assigned, and of the place in the machine only the bus id is known.
// After the first time a GPU that answered costs one call, two where it could be partitioned and is not. A GPU that is being changed by this
// session is not asked and is what it was before.
func (s *Session) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	count, err := ask(ctx, s, library.WholeDriver, "nvmlDeviceGetCount_v2", s.lib.DeviceGetCount)
	if err != nil {
		return nil, nil, fmt.Errorf("listing GPUs: %w", err)
	}
	found := make([]gpu.GPU, count)
	faults := make([]gpu.Fault, count)
	// In parallel, so that a GPU that hangs holds up the others for one deadline at most.
	var all sync.WaitGroup
	for index := range count {
		all.Go(func() { found[index], faults[index] = s.inspect(ctx, index) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("listing GPUs: %w", err)
	}
	return partition(found, faults)
}

// partition separates the GPUs that answered from the others. When the driver left in between, that is the answer.
func partition(found []gpu.GPU, faults []gpu.Fault) ([]gpu.GPU, []gpu.Fault, error) {
	var usable []gpu.GPU
	var broken []gpu.Fault
	for i := range found {
		switch err := faults[i].Err; {
		case err == nil:
			usable = append(usable, found[i])
		case errors.Is(err, gpu.ErrDriverNotLoaded):
			return nil, nil, fmt.Errorf("listing GPUs: %w", err)
		default:
			broken = append(broken, faults[i])
		}
	}
	return usable, broken, nil
}

// inspect reads one GPU, or asks a known one whether it still answers.
func (s *Session) inspect(ctx context.Context, index int) (gpu.GPU, gpu.Fault) {
	s.mu.Lock()
	known, ok := s.boards[index]
	s.mu.Unlock()
	var err error
	if ok {
		change := s.changes(known.facts.UUID)
		if !change.TryLock() {
			return known.facts, gpu.Fault{}
		}
		defer change.Unlock()
		s.mu.Lock()
		if now, ok := s.boards[index]; ok {
			known = now // a change that has just ended may have brought a new handle
		}
		s.mu.Unlock()
		err = s.again(ctx, &known)
	} else {
		known, err = s.read(ctx, index)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.boards[index] = known
		return known.facts, gpu.Fault{}
	}
	if cause := ctx.Err(); cause == nil || !errors.Is(err, cause) {
		// A GPU that comes back may have another handle. That the caller gave up says nothing about the GPU, which claims may be using.
		delete(s.boards, index)
	}
	return gpu.GPU{}, gpu.Fault{Index: index, UUID: known.facts.UUID, BusID: known.facts.PCI.BusID, Err: err}
}

// again asks a known GPU whether it still answers, and what can have changed. Where a fact was missing, all are read again.
func (s *Session) again(ctx context.Context, b *board) error {
	if b.incomplete {
		fresh, err := s.read(ctx, b.facts.Index)
		if err == nil {
			*b = fresh
		}
		return err
	}
	q := query{ctx: ctx, session: s, on: library.GPUAt(b.facts.Index), device: b.device, limit: s.opts.Deadline}
	if err := q.alive(); err != nil || b.facts.MIG == nil {
		return err
	}
	if err := q.refreshMIG(b); err != nil || b.facts.MIG.Mode.Enabled == b.mode {
		return err
	}
	return q.identify(b, b.facts.MIG.Mode.Enabled) // another process has changed the mode
}

// read asks a GPU for everything. On an error the board has what was read before it.
func (s *Session) read(ctx context.Context, index int) (board, error) {
	b := board{facts: gpu.GPU{Index: index, PCI: gpu.PCI{NUMANode: -1}}}
	var err error
	b.device, err = ask(ctx, s, library.GPUAt(index), "nvmlDeviceGetHandleByIndex_v2", func() (nvml.Device, nvml.Return) {
		return s.lib.DeviceGetHandleByIndex(index)
	})
	if err != nil {
		return b, err
	}
	q := query{
		ctx: ctx, session: s, on: library.GPUAt(index), device: b.device, limit: s.opts.Deadline, incomplete: &b.incomplete,
	}
	for _, part := range []func(query, *gpu.GPU) error{readIdentity, readProduct, readAddressing, readCapacity} {
		if err := part(q, &b.facts); err != nil {
			return b, err
		}
	}
	b.facts.MemoryLimits = s.limitsMemory()
	return b, readMIG(q, &b)
}

// query is what the questions to one GPU have in common.
type query struct {
	ctx     context.Context
	session *Session
	on      library.Target
	device  nvml.Device
	// limit is how long each may take.
	limit time.Duration
	// incomplete is set where the answer to one of them is missing that may come later; nil where the caller does not want to know.
	incomplete *bool
}

// must asks for something that the caller cannot do without.
func must[T any](q query, symbol string, fn func() (T, nvml.Return)) (T, error) {
	return library.Ask(q.ctx, q.session.driver, library.Call{On: q.on, Name: symbol, Limit: q.limit}, fn)
}

// may asks for something that a GPU or a driver may not report, as library.Facts say; then the answer is the zero value.
func may[T any](q query, symbol string, fn func() (T, nvml.Return)) (T, bool, error) {
	value, err := must(q, symbol, fn)
	if absent, later := library.Absent(q.ctx, symbol, err); absent {
		if later && q.incomplete != nil {
			*q.incomplete = true
		}
		var none T
		return none, false, nil
	}
	return value, err == nil, err
}

// alive returns nil when the GPU responds. The answer is not used: a board without it is as alive as any.
func (q query) alive() error {
	_, _, err := may(q, "nvmlDeviceGetPerformanceState", q.device.GetPerformanceState)
	return err
}

// minorNumber is the function that names the GPU's device node.
const minorNumber = "nvmlDeviceGetMinorNumber"

// readIdentity reads what identifies the GPU, and how it is reached.
func readIdentity(q query, g *gpu.GPU) error {
	uuid, err := must(q, "nvmlDeviceGetUUID", q.device.GetUUID)
	if err != nil {
		return err
	}
	g.UUID = gpu.UUID(uuid)
	pci, err := must(q, "nvmlDeviceGetPciInfo_v3", q.device.GetPciInfo)
	if err != nil {
		return err
	}
	g.PCI.BusID = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	if err := q.alive(); err != nil {
		return err
	}
	minor, known, err := may(q, minorNumber, q.device.GetMinorNumber)
	if g.Minor = minor; !known {
		g.Minor = gpu.UnknownMinor
	}
	return err
}

func readProduct(q query, g *gpu.GPU) error {
	name, _, err := may(q, "nvmlDeviceGetName", q.device.GetName)
	if err != nil {
		return err
	}
	capability, known, err := may(q, "nvmlDeviceGetCudaComputeCapability", func() (computeCapability, nvml.Return) {
		major, minor, ret := q.device.GetCudaComputeCapability()
		return computeCapability{major, minor}, ret
	})
	if err != nil {
		return err
	}
	brand, _, err := may(q, "nvmlDeviceGetBrand", q.device.GetBrand)
	if err != nil {
		return err
	}
	architecture, _, err := may(q, "nvmlDeviceGetArchitecture", q.device.GetArchitecture)
	if err != nil {
		return err
	}
	_, mig, err := may(q, "nvmlDeviceGetMigMode", func() (struct{}, nvml.Return) {
		_, _, ret := q.device.GetMigMode()
		return struct{}{}, ret
	})
	if err != nil {
		return err
	}
	g.Product = gpu.Product{
		Name: strings.TrimSpace(name), Brand: library.BrandName(brand),
		Architecture: library.ArchitectureName(architecture, capability.major, capability.minor),
		MIGCapable:   mig,
	}
	if known {
		g.Product.ComputeCapability = capability.String()
	}
	return nil
}

func readCapacity(q query, g *gpu.GPU) error {
	memory, err := readMemory(q, g)
	if err != nil {
		return err
	}
	engines, err := readEngines(q, g.Product.MIGCapable)
	if err != nil {
		return err
	}
	cores, known, err := may(q, "nvmlDeviceGetNumGpuCores", q.device.GetNumGpuCores)
	if err != nil {
		return err
	}
	if per := coresPerMultiprocessor(g.Product.ComputeCapability); known && per != 0 {
		// The profile of the largest GPU instance leaves out the multiprocessors that no GPU instance has.
		engines.Multiprocessors = uint32(cores) / per //nolint:gosec // NVML counts in 32 bits
	}
	engines.MemoryBytes = memory
	g.Capacity = engines
	return nil
}

// readMemory reads the GPU's memory in bytes, 0 where the driver does not report it. A GPU that does not support the question has none of its
// own.
func readMemory(q query, g *gpu.GPU) (uint64, error) {
	const symbol = "nvmlDeviceGetMemoryInfo"
	memory, err := must(q, symbol, q.device.GetMemoryInfo)
	absent, later := library.Absent(q.ctx, symbol, err)
	if !absent {
		return memory.Total, err
	}
	g.UnifiedMemory = !later
	*q.incomplete = *q.incomplete || later
	return 0, nil
}

// largestProfiles are the GPU instance profiles that span a whole GPU, on one model or another.
var largestProfiles = []int{
	nvml.GPU_INSTANCE_PROFILE_8_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE,
	nvml.GPU_INSTANCE_PROFILE_6_SLICE, nvml.GPU_INSTANCE_PROFILE_4_SLICE,
}

// readEngines takes the engine counts from the profile that spans the whole GPU: NVML reports them in no other way.
func readEngines(q query, migCapable bool) (gpu.Capacity, error) {
	if !migCapable {
		return gpu.Capacity{}, nil
	}
	for _, profile := range largestProfiles {
		info, known, err := may(q, profileInfo, func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
			info, ret := q.device.GetGpuInstanceProfileInfo(profile)
			return info, absentProfile(ret)
		})
		if err != nil {
			return gpu.Capacity{}, err
		}
		if known {
			return gpu.Capacity{
				Multiprocessors: info.MultiprocessorCount, CopyEngines: info.CopyEngineCount, Decoders: info.DecoderCount,
				Encoders: info.EncoderCount, JPEGEngines: info.JpegCount, OFAEngines: info.OfaCount,
			}, nil
		}
	}
	return gpu.Capacity{}, nil
}
