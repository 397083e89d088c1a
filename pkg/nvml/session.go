package nvml

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

// Options describe the installation that a session works on.
type Options struct {
	// Root is the driver root as this process sees it, HostRoot the same directory as the host sees it. Empty means "/".
	Root, HostRoot string
	// HookPath is the host's path of the nvidia-cdi-hook program. Empty: CommonEdits does without hooks.
	HookPath string
	// DisabledHooks are left out although there is a program for them: "update-ldcache".
	DisabledHooks []string
	// Deadline is how long one call may take. Zero means DefaultDeadline.
	Deadline time.Duration
}

// DefaultDeadline is the time one call into the driver has. A healthy GPU answers in microseconds, one whose firmware starts
// up in a second or two.
const DefaultDeadline = 5 * time.Second

// Session is an initialised driver library. It is safe for concurrent use. Its calls fail with gpu.ErrDriverNotLoaded after
// the driver was unloaded or the session was closed; then Open makes a new one.
type Session struct {
	lib  nvml.Interface
	gate *gate
	opts Options

	mu       sync.Mutex
	boards   map[int]board
	changing map[gpu.UUID]*sync.Mutex
	// running counts the calls that are in the library.
	running int
	closed  bool
}

// Open loads the library file at that path, as this process sees it, and initialises it. gpu.ErrDriverNotLoaded: there is no
// kernel driver yet or the library does not fit it, a later try may succeed. gpu.ErrDriverReplaced: this process has loaded
// another file.
func Open(ctx context.Context, library string, opts Options) (*Session, error) {
	lib, err := bound.library(library)
	if err != nil {
		return nil, err
	}
	session, err := open(ctx, lib, bound.gate, opts)
	if errors.Is(err, errNotLoadable) {
		bound.reset(lib)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", library, err)
	}
	return session, nil
}

// errNotLoadable: the dynamic linker refused the file.
var errNotLoadable = fmt.Errorf("the dynamic linker refuses the library, it is damaged or needs a newer C library: %w",
	gpu.ErrDriverNotLoaded)

// open initialises the library.
func open(ctx context.Context, lib nvml.Interface, g *gate, opts Options) (*Session, error) {
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	if opts.Root == "" {
		opts.Root = "/"
	}
	if opts.HostRoot == "" {
		opts.HostRoot = "/"
	}
	s := &Session{lib: lib, gate: g, opts: opts, boards: map[int]board{}, changing: map[gpu.UUID]*sync.Mutex{}}
	const symbol = "nvmlInit_v2"
	var decided atomic.Bool // by the call that returned or by the caller that gave up, whichever came first
	_, err := pass(ctx, g, call{wholeDriver, symbol, opts.Deadline}, func() (struct{}, error) {
		ret := lib.Init()
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			return struct{}{}, errNotLoadable
		}
		if ret == nvml.SUCCESS && decided.Swap(true) {
			ret = lib.Shutdown() // or the library would stay initialised, and the kernel module in use, until this process exits
		}
		return struct{}{}, asError(symbol, ret)
	})
	if err != nil && !decided.Swap(true) {
		return nil, err
	}
	return s, nil
}

// Driver returns the versions of driver and CUDA.
func (s *Session) Driver(ctx context.Context) (gpu.Driver, error) {
	version, err := ask(ctx, s, wholeDriver, "nvmlSystemGetDriverVersion", s.lib.SystemGetDriverVersion)
	if err != nil {
		return gpu.Driver{}, err
	}
	cuda, err := ask(ctx, s, wholeDriver, "nvmlSystemGetCudaDriverVersion", s.lib.SystemGetCudaDriverVersion)
	if err != nil {
		return gpu.Driver{}, err
	}
	return gpu.Driver{Version: version, CUDAVersion: cudaVersion(cuda)}, nil
}

// Ping makes one cheap call that fails when the driver is gone.
func (s *Session) Ping(ctx context.Context) error {
	_, err := ask(ctx, s, wholeDriver, "nvmlSystemGetDriverVersion", s.lib.SystemGetDriverVersion)
	return err
}

// Close ends the session. Closing twice is no error; a driver that is gone has nothing left to end. While calls are in the library it
// stays loaded: the last of them to come back ends the session then.
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

// shutdown unloads the library, unless another session has it.
func (s *Session) shutdown() error {
	const symbol = "nvmlShutdown"
	_, err := pass(context.Background(), s.gate, call{wholeDriver, symbol, s.opts.Deadline}, func() (struct{}, error) {
		return struct{}{}, asError(symbol, s.lib.Shutdown())
	})
	if errors.Is(err, gpu.ErrDriverNotLoaded) {
		return nil
	}
	return err
}

// enter reports whether a call may go into the library, which then stays loaded until leave.
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

// ask calls a function of the library that has this symbol.
func ask[T any](ctx context.Context, s *Session, on target, symbol string, fn func() (T, nvml.Return)) (T, error) {
	return askWithin(ctx, s, call{on, symbol, s.opts.Deadline}, fn)
}

// askWithin is ask for a call that has another limit.
func askWithin[T any](ctx context.Context, s *Session, c call, fn func() (T, nvml.Return)) (T, error) {
	return pass(ctx, s.gate, c, func() (T, error) {
		var none T
		if !s.enter() {
			return none, gpu.ErrDriverNotLoaded
		}
		defer s.leave()
		if !s.has(c.name) {
			return none, &gpu.UnsupportedError{Feature: c.name, Needs: needs[c.name]}
		}
		value, ret := fn()
		return value, asError(c.name, ret)
	})
}

// needs says which driver brought the functions that a supported driver may lack.
var needs = map[string]string{
	"nvmlDeviceGetArchitecture":           "driver 450 or later",
	"nvmlDeviceGetMigMode":                "driver 450 or later",
	"nvmlDeviceGetGpuInstanceProfileInfo": "driver 450 or later",
	"nvmlDeviceGetNumGpuCores":            "driver 510 or later",
	getMemoryLimits:                       "driver 615 or later",
	setMemoryLimits:                       "driver 615 or later",
}

// has reports whether the loaded library has the function. Calling one that it lacks would kill the process.
func (s *Session) has(symbol string) bool {
	return s.lib.Extensions().LookupSymbol(symbol) == nil
}

// cudaVersion words NVML's number: 13000 is "13.0", 12040 is "12.4".
func cudaVersion(number int) string {
	return fmt.Sprintf("%d.%d", number/1000, number%1000/10)
}
