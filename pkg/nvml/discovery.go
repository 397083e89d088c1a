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

// board is a GPU whose facts were read. Within a session only its partitioning changes.
type board struct {
	device   nvml.Device
	facts    gpu.GPU
	profiles []profile
	// mode says whether MIG mode was on when handle and minor number were read.
	mode bool
	// incomplete says that the driver did not report a fact, but may do so later.
	incomplete bool
}

// GPUs lists the GPUs of the node in the order of their index. A GPU that does not answer becomes a fault and hides no other GPU; the error
// concerns only the list itself. IDs are not assigned, and the location in the machine is known only by bus ID. From the second call on, a
// GPU that answered costs one call into the driver, or two if it supports MIG and is not partitioned. A GPU that this session is changing
// is not asked; the list shows its previous facts.
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

// partition separates the GPUs that answered from the others. If the driver was unloaded in between, it returns that error.
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

// inspect reads one GPU, or checks whether a known one still answers.
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
		// A GPU that comes back may have another handle. If only the caller gave up, the GPU may be fine and in use by claims.
		delete(s.boards, index)
	}
	return gpu.GPU{}, gpu.Fault{Index: index, UUID: known.facts.UUID, BusID: known.facts.PCI.BusID, Err: err}
}

// again checks whether a known GPU still answers, and reads the facts that may have changed. If a fact was missing, it reads all of them
// again.
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

// read reads all facts of a GPU. After an error the board contains the facts that were read before the error.
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

// query holds what all calls for one GPU share.
type query struct {
	ctx     context.Context
	session *Session
	on      library.Target
	device  nvml.Device
	// limit is the longest time for one call.
	limit time.Duration
	// incomplete is set if a call had no answer but may have one later; nil if the caller does not need it.
	incomplete *bool
}

// must makes a call whose result the caller requires.
func must[T any](q query, symbol string, fn func() (T, nvml.Return)) (T, error) {
	return library.Ask(q.ctx, q.session.driver, library.Call{On: q.on, Name: symbol, Limit: q.limit}, fn)
}

// may makes a call that a GPU or a driver may not support, according to library.Facts; then the result is the zero value.
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

// alive returns nil if the GPU responds. The result is not used: a board that does not support the call is alive, too.
func (q query) alive() error {
	_, _, err := may(q, "nvmlDeviceGetPerformanceState", q.device.GetPerformanceState)
	return err
}

// minorNumber is the function that names the GPU's device node.
const minorNumber = "nvmlDeviceGetMinorNumber"

// readIdentity reads the identity of the GPU, and its PCI address and minor number.
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
		// The profile of the largest GPU instance does not count multiprocessors that no GPU instance can use.
		engines.Multiprocessors = uint32(cores) / per //nolint:gosec // NVML counts in 32 bits
	}
	engines.MemoryBytes = memory
	g.Capacity = engines
	return nil
}

// readMemory reads the GPU's memory in bytes, 0 if the driver does not report it. A GPU that does not support the call has no memory of its
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

// largestProfiles are the GPU instance profiles that span a whole GPU on some model.
var largestProfiles = []int{
	nvml.GPU_INSTANCE_PROFILE_8_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE,
	nvml.GPU_INSTANCE_PROFILE_6_SLICE, nvml.GPU_INSTANCE_PROFILE_4_SLICE,
}

// readEngines takes the engine counts from the profile that spans the whole GPU: NVML does not report them elsewhere.
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
