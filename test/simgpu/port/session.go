package port

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/bundle"
	"github.com/prism-gpu/prism/test/simgpu/layout"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// Session is an open driver of the model. It returns the same as the product's session with the simulated library: the node counts calls
// under this process, and faults of the node affect them by the name of the NVML function.
type Session struct {
	node    *model.Node
	session *model.Session
	root    string

	closed atomic.Bool

	mu       sync.Mutex
	known    map[gpu.UUID][]gpu.MIGProfile // by GPU, once read
	noFabric map[gpu.UUID]bool
}

// callTimeout bounds a call with a hanging fault.
const callTimeout = 50 * time.Millisecond

const wholeNode = model.AnyGPU

// open starts a session that sees all GPUs.
func open(ctx context.Context, node *model.Node, root string) (*Session, error) {
	s := &Session{node: node, root: root, known: map[gpu.UUID][]gpu.MIGProfile{}, noFabric: map[gpu.UUID]bool{}}
	if err := s.call(ctx, "nvmlInit_v2", wholeNode); err != nil {
		return nil, err
	}
	var minors []int
	for _, id := range node.Identities() {
		minors = append(minors, id.Minor)
	}
	var err error
	s.session, err = node.Open("", minors)
	return s, asError("nvmlInit_v2", err)
}

// call counts a call and applies the node's faults. As in the product's session, no call is made if the context is done or the session is
// closed.
func (s *Session) call(ctx context.Context, symbol string, ordinal int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", symbol, err)
	}
	if s.closed.Load() {
		return asError(symbol, model.Uninitialized)
	}
	s.node.Calls.Add(os.Getpid(), filepath.Base(os.Args[0]), symbol)
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, gpu.ErrTimeout)
	defer cancel()
	return asError(symbol, s.node.Faults.Pass(ctx, symbol, ordinal))
}

// Driver returns the versions of driver and CUDA.
func (s *Session) Driver(ctx context.Context) (gpu.Driver, error) {
	const symbol = "nvmlSystemGetDriverVersion"
	if err := errors.Join(s.call(ctx, symbol, wholeNode), asError(symbol, s.session.Alive())); err != nil {
		return gpu.Driver{}, err
	}
	version, _ := s.node.Driver()
	cuda := version.CUDA()
	return gpu.Driver{Version: version.String(), CUDAVersion: fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)}, nil
}

// GPUs lists the GPUs that respond, with their MIG state, and the others as faults.
func (s *Session) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	const symbol = "nvmlDeviceGetCount_v2"
	count, err := s.session.Count()
	if err := errors.Join(s.call(ctx, symbol, wholeNode), asError(symbol, err)); err != nil {
		return nil, nil, err
	}
	var gpus []gpu.GPU
	var faults []gpu.Fault
	for index := range count {
		g, err := s.gpuAt(ctx, index)
		switch {
		case errors.Is(err, gpu.ErrDriverNotLoaded):
			return nil, nil, err
		case err != nil:
			faults = append(faults, gpu.Fault{Index: index, UUID: g.UUID, BusID: g.PCI.BusID, Err: err})
		default:
			gpus = append(gpus, g)
		}
	}
	if err := ctx.Err(); err != nil { // a canceled call is not a fault of a GPU
		return nil, nil, fmt.Errorf("%s: %w", symbol, err)
	}
	return gpus, faults, nil
}

// gpuAt describes a GPU. After an error it contains only the identity.
func (s *Session) gpuAt(ctx context.Context, index int) (gpu.GPU, error) {
	const symbol = "nvmlDeviceGetPerformanceState"
	handle, err := s.session.ByIndex(index)
	if err != nil {
		return gpu.GPU{}, asError("nvmlDeviceGetHandleByIndex_v2", err)
	}
	board, id, err := s.session.Device(handle)
	if err != nil {
		return gpu.GPU{}, asError(symbol, err)
	}
	version, _ := s.node.Driver()
	g := describe(index, board, id)
	g.MemoryLimits = version.Branch() >= limitsFrom
	g.Capacity = capacity(board, version.Branch())
	if err := s.call(ctx, symbol, id.Ordinal); err != nil {
		return g, err
	}
	g.MIG, err = device{s, ctx, handle}.partitions()
	return g, err
}

// describe converts a GPU of the model to the product's type.
func describe(index int, board model.Board, id model.Identity) gpu.GPU {
	return gpu.GPU{
		UUID: gpu.UUID(id.UUID), Index: index, Minor: id.Minor,
		PCI: gpu.PCI{BusID: id.PCI.String(), NUMANode: -1},
		Product: gpu.Product{
			Name: board.Product.Name, Brand: brands[board.Product.Brand], Architecture: architectures[board.Compute.Architecture],
			ComputeCapability: fmt.Sprintf("%d.%d", board.Compute.Major, board.Compute.Minor), MIGCapable: board.MIG.Capable(),
		},
	}
}

// coresFrom is the driver branch from which NVML reports the number of cores of a GPU. Before, and for engines always, it only reports the
// numbers of the GPU instance profile that spans the GPU.
const coresFrom = 510

func capacity(board model.Board, branch int) gpu.Capacity {
	var c gpu.Capacity
	if e := board.Engines; board.MIG.Capable() {
		c = gpu.Capacity{
			Multiprocessors: uint32(board.MIG.Multiprocessors), CopyEngines: uint32(e.Copy), Decoders: uint32(e.Decoder),
			Encoders: uint32(e.Encoder), JPEGEngines: uint32(e.JPEG), OFAEngines: uint32(e.OFA),
		}
	}
	if branch >= coresFrom {
		c.Multiprocessors = uint32(board.Compute.Multiprocessors)
	}
	c.MemoryBytes = board.Memory.TotalMiB << 20
	return c
}

var (
	brands = map[model.Brand]string{model.BrandNVIDIA: "Nvidia"}

	architectures = map[model.Architecture]string{
		model.Turing: "Turing", model.Ampere: "Ampere", model.Ada: "Ada Lovelace", model.Hopper: "Hopper",
		model.Blackwell: "Blackwell",
	}
)

// CommonEdits mounts the libraries, nvidia-smi and the socket of the driver.
func (s *Session) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	driver, err := s.Driver(ctx)
	if err != nil {
		return nil, err
	}
	edits := &specs.ContainerEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}
	mount := func(file string) {
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: filepath.Join(s.root, file), ContainerPath: file,
			Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
		})
	}
	mount("/run/nvidia-persistenced/socket")
	mount("/usr/bin/nvidia-smi")
	for _, library := range bundle.Libraries(model.DriverVersion(driver.Version)) {
		mount(filepath.Join("/", layout.LibDir(), library.File(model.DriverVersion(driver.Version))))
	}
	return edits, nil
}

// Close ends the session, and detaches it from the GPUs. Closing twice is no error.
func (s *Session) Close() error {
	if !s.closed.Swap(true) {
		s.session.Close()
	}
	return nil
}

// asError converts a return code of the model to the product's errors.
func asError(symbol string, err error) error {
	var code model.Return
	if !errors.As(err, &code) {
		if err != nil {
			return fmt.Errorf("%s: %w", symbol, err)
		}
		return nil
	}
	if code == model.NotSupported || code == model.FunctionNotFound {
		return &gpu.UnsupportedError{Feature: symbol}
	}
	if kind, ok := kinds[code]; ok {
		return fmt.Errorf("%s: %w (%w)", symbol, kind, code)
	}
	return fmt.Errorf("%s: %w", symbol, err)
}

var kinds = map[model.Return]error{
	model.Uninitialized: gpu.ErrDriverNotLoaded, model.DriverNotLoaded: gpu.ErrDriverNotLoaded,
	model.LibRMVersionMismatch: gpu.ErrDriverNotLoaded, model.GPUIsLost: gpu.ErrLost, model.ResetRequired: gpu.ErrLost,
	model.NotFound: gpu.ErrNotFound, model.NoData: gpu.ErrNotFound, model.InUse: gpu.ErrInUse,
	model.InsufficientResources: gpu.ErrInUse, model.NotReady: gpu.ErrInUse, model.Timeout: gpu.ErrTimeout,
	model.NoPermission: gpu.ErrPermission,
}
