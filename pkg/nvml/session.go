package nvml

import (
	"context"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// Options describe the installation that a session works on.
type Options struct {
	// Root is the driver root as this process sees it, HostRoot the same directory as the host sees it. Empty means "/".
	Root, HostRoot string
	// HookPath is the host's path of the nvidia-cdi-hook program. Empty: CommonEdits does without hooks.
	HookPath string
	// LibraryDir is the directory of the library as this process sees it; it is searched for the driver's files where they are not in the usual
	// directories of Root. Empty: it is not.
	LibraryDir string
	// Ldconfig is the host's path of the program that the hook updates the linker's cache with; empty: /sbin/ldconfig.
	Ldconfig string
	// CUDACompat: containers use the CUDA compatibility libraries that they bring along where these are newer than the driver's. It needs
	// a hook program of 1.18.0 or later, and has no effect without one.
	CUDACompat bool
	// DisabledHooks are left out although there is a program for them: "update-ldcache".
	DisabledHooks []string
	// Deadline is how long one call may take. Zero means DefaultDeadline.
	Deadline time.Duration
}

// DefaultDeadline is the time one call into the driver has. A healthy GPU answers in microseconds, one whose firmware starts
// up in a second or two.
const DefaultDeadline = library.DefaultDeadline

// Session is an initialised driver library. It is safe for concurrent use. Its calls fail with gpu.ErrDriverNotLoaded after
// the driver was unloaded or the session was closed; then Open makes a new one.
type Session struct {
	lib    nvml.Interface
	gate   *library.Gate
	driver *library.Session
	opts   Options

	mu       sync.Mutex
	boards   map[int]board
	changing map[gpu.UUID]*sync.Mutex
}

// Open loads the library file at that path, as this process sees it, and initialises it. gpu.ErrDriverNotLoaded: there is no
// kernel driver yet or the library does not fit it, a later try may succeed. gpu.ErrDriverReplaced: this process has loaded
// another file.
func Open(ctx context.Context, path string, opts Options) (*Session, error) {
	driver, err := library.Open(ctx, path, opts.Deadline)
	if err != nil {
		return nil, err
	}
	return newSession(driver, opts), nil
}

// open initialises the library.
func open(ctx context.Context, lib nvml.Interface, g *library.Gate, opts Options) (*Session, error) {
	driver, err := library.Initialise(ctx, lib, g, opts.Deadline)
	if err != nil {
		return nil, err
	}
	return newSession(driver, opts), nil
}

func newSession(driver *library.Session, opts Options) *Session {
	opts.Deadline = driver.Deadline()
	if opts.Root == "" {
		opts.Root = "/"
	}
	if opts.HostRoot == "" {
		opts.HostRoot = "/"
	}
	return &Session{
		lib: driver.Library(), gate: driver.Gate(), driver: driver, opts: opts, boards: map[int]board{}, changing: map[gpu.UUID]*sync.Mutex{},
	}
}

// Driver returns the versions of driver and CUDA.
func (s *Session) Driver(ctx context.Context) (gpu.Driver, error) { return s.driver.Driver(ctx) }

// Ping makes one cheap call that fails when the driver is gone.
func (s *Session) Ping(ctx context.Context) error {
	_, err := ask(ctx, s, library.WholeDriver, "nvmlSystemGetDriverVersion", s.lib.SystemGetDriverVersion)
	return err
}

// Close ends the session. Closing twice is no error; a driver that is gone has nothing left to end. While calls are in the library it
// stays loaded: the last of them to come back ends the session then.
func (s *Session) Close() error { return s.driver.Close() }

// ask calls a function of the library that has this symbol.
func ask[T any](ctx context.Context, s *Session, on library.Target, symbol string, fn func() (T, nvml.Return)) (T, error) {
	return library.Ask(ctx, s.driver, library.Call{On: on, Name: symbol, Limit: s.opts.Deadline}, fn)
}
