package library

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// DefaultDeadline limits one call into the driver. A healthy GPU answers in microseconds, or in a second or two while its firmware starts.
const DefaultDeadline = 5 * time.Second

// Session is an initialised driver library. It is safe for concurrent use. Its calls fail with gpu.ErrDriverNotLoaded after the driver was
// unloaded or the session was closed; then call Open for a new session.
type Session struct {
	lib      nvml.Interface
	gate     *Gate
	deadline time.Duration

	mu sync.Mutex
	// running counts the calls inside the library.
	running int
	closed  bool
	// ended is closed after the library was shut down.
	ended chan struct{}
	// symbols maps function names that were looked up to whether the library has them.
	symbols sync.Map
}

// Open loads and initialises the library file at that path of this process. gpu.ErrDriverNotLoaded: the kernel driver is not loaded or does
// not match the library; a later try may succeed. gpu.ErrDriverReplaced: this process has loaded another file. The deadline applies to each
// call; zero means DefaultDeadline.
func Open(ctx context.Context, path string, deadline time.Duration) (*Session, error) {
	lib, err := bound.library(path)
	if err != nil {
		return nil, err
	}
	session, err := Initialise(ctx, lib, bound.gate, deadline)
	if errors.Is(err, errNotLoadable) {
		bound.reset(lib)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return session, nil
}

// errNotLoadable: the dynamic linker refused the file.
var errNotLoadable = fmt.Errorf("the dynamic linker rejected the library: it is damaged or needs a newer C library: %w",
	gpu.ErrDriverNotLoaded)

// Initialise initialises a library that is already loaded; use Open for a file.
func Initialise(ctx context.Context, lib nvml.Interface, g *Gate, deadline time.Duration) (*Session, error) {
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	s := &Session{lib: lib, gate: g, deadline: deadline, ended: make(chan struct{})}
	const symbol = "nvmlInit_v2"
	var decided atomic.Bool // by the returning call or by the caller giving up, whichever comes first
	_, err := Pass(ctx, g, Call{WholeDriver, symbol, deadline}, func() (struct{}, error) {
		ret := lib.Init()
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			return struct{}{}, errNotLoadable
		}
		if ret == nvml.SUCCESS && decided.Swap(true) {
			ret = lib.Shutdown() // otherwise the library stays initialised, and the kernel module in use, until this process exits
		}
		return struct{}{}, AsError(symbol, ret)
	})
	if err != nil && !decided.Swap(true) {
		return nil, err
	}
	return s, nil
}

// Library returns go-nvml for functions that take the whole interface. Make calls through Ask.
func (s *Session) Library() nvml.Interface { return s.lib }

// Gate returns the gate that all calls pass.
func (s *Session) Gate() *Gate { return s.gate }

// Deadline returns the time limit of one call.
func (s *Session) Deadline() time.Duration { return s.deadline }

// Driver returns the versions of driver and CUDA; the CUDA version is empty if the driver does not report it.
func (s *Session) Driver(ctx context.Context) (gpu.Driver, error) {
	version, err := Ask(ctx, s, s.onDriver("nvmlSystemGetDriverVersion"), s.lib.SystemGetDriverVersion)
	if err != nil {
		return gpu.Driver{}, err
	}
	const symbol = "nvmlSystemGetCudaDriverVersion"
	cuda, err := Ask(ctx, s, s.onDriver(symbol), s.lib.SystemGetCudaDriverVersion)
	if absent, _ := Absent(ctx, symbol, err); absent {
		return gpu.Driver{Version: version}, nil
	}
	if err != nil {
		return gpu.Driver{}, err
	}
	return gpu.Driver{Version: version, CUDAVersion: cudaVersion(cuda)}, nil
}

// Close ends the session. Closing twice, or after the driver is gone, is no error. During calls the library stays loaded: the last call to
// return ends the session.
func (s *Session) Close() error {
	s.mu.Lock()
	ends := !s.closed && s.running == 0
	s.closed = true
	s.mu.Unlock()
	if !ends {
		return nil
	}
	return s.shutdown()
}

// Ended returns a channel that is closed once the library is shut down, after Close and the last call.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// shutdown unloads the library, unless another session uses it.
func (s *Session) shutdown() error {
	defer close(s.ended)
	const symbol = "nvmlShutdown"
	_, err := Pass(context.Background(), s.gate, s.onDriver(symbol), func() (struct{}, error) {
		return struct{}{}, AsError(symbol, s.lib.Shutdown())
	})
	if errors.Is(err, gpu.ErrDriverNotLoaded) {
		return nil
	}
	return err
}

// enter reports whether a call may enter the library, which then stays loaded until leave.
func (s *Session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running++
	return true
}

func (s *Session) leave() {
	s.mu.Lock()
	s.running--
	last := s.closed && s.running == 0
	s.mu.Unlock()
	if last {
		go func() { _ = s.shutdown() }() // nothing waits for it: the caller has returned
	}
}

// onDriver describes a call that does not concern one GPU.
func (s *Session) onDriver(symbol string) Call { return Call{WholeDriver, symbol, s.deadline} }

// Ask calls a function of the library. The name of the call is the function's symbol.
func Ask[T any](ctx context.Context, s *Session, c Call, fn func() (T, nvml.Return)) (T, error) {
	return Pass(ctx, s.gate, c, func() (T, error) {
		var none T
		if !s.enter() {
			return none, gpu.ErrDriverNotLoaded
		}
		defer s.leave()
		if !s.has(c.Name) {
			return none, &gpu.UnsupportedError{Feature: c.Name, Needs: needs[c.Name]}
		}
		value, ret := fn()
		return value, AsError(c.Name, ret)
	})
}

// Has reports whether the loaded library has all these functions, without a call into the driver.
func (s *Session) Has(symbols ...string) bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	for _, symbol := range symbols {
		if !s.has(symbol) {
			return false
		}
	}
	return true
}

// needs names the first driver with each function that supported drivers may lack.
var needs = map[string]string{
	"nvmlDeviceGetArchitecture":           "driver 450 or later",
	"nvmlDeviceGetMigMode":                "driver 450 or later",
	"nvmlDeviceGetGpuInstanceProfileInfo": "driver 450 or later",
	"nvmlDeviceGetNumGpuCores":            "driver 510 or later",
	"nvmlDeviceGetAddressingMode":         "a later driver",
	"nvmlEventSetWait_v2":                 "driver 450 or later",
	"nvmlDeviceGetGpuFabricInfo":          "driver 525 or later",
	"nvmlDeviceGetGpuFabricInfoV":         "driver 550 or later",
	"nvmlDeviceGetMemoryLimits_v1":        "driver 615 or later",
	"nvmlDeviceSetMemoryLimits_v1":        "driver 615 or later",
}

// has reports whether the loaded library has the function. Calling a missing function would kill the process. The library stays loaded
// while the session is open, so each function is looked up once.
func (s *Session) has(symbol string) bool {
	if known, ok := s.symbols.Load(symbol); ok {
		return known.(bool)
	}
	known := s.lib.Extensions().LookupSymbol(symbol) == nil
	s.symbols.Store(symbol, known)
	return known
}

// cudaVersion formats NVML's number: 13000 is "13.0", 12040 is "12.4".
func cudaVersion(number int) string {
	return fmt.Sprintf("%d.%d", number/1000, number%1000/10)
}
