package nvml

import (
	"context"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// Options describe the driver installation of a session.
type Options struct {
	// Root is the driver root as this process sees it, HostRoot the same directory as the host sees it. Empty means "/".
	Root, HostRoot string
	// HookPath is the host's path of the nvidia-cdi-hook program. Empty: CommonEdits uses no hooks.
	HookPath string
	// LibraryDir is the directory of the library as this process sees it. It is searched for the driver's files if they are not in the
	// usual directories of Root. Empty: it is not searched.
	LibraryDir string
	// Ldconfig is the host's path of the program that the hook updates the linker's cache with; empty: /sbin/ldconfig.
	Ldconfig string
	// CUDACompat lets containers use their own CUDA compatibility libraries if these are newer than the driver's. It needs a hook program
	// of version 1.18.0 or later; otherwise it is ignored.
	CUDACompat bool
	// DisabledHooks are not used even if HookPath is set: "update-ldcache".
	DisabledHooks []string
	// Deadline limits one call. Zero means DefaultDeadline.
	Deadline time.Duration
}

// DefaultDeadline limits one call into the driver. A healthy GPU answers in microseconds, or in a second or two while its firmware starts.
const DefaultDeadline = library.DefaultDeadline

// Session is an initialised driver library. It is safe for concurrent use. Its calls fail with gpu.ErrDriverNotLoaded after the driver was
// unloaded or the session was closed; then call Open for a new session.
type Session struct {
	lib    nvml.Interface
	gate   *library.Gate
	driver *library.Session
	opts   Options

	// events is the event set for the health of GPUs.
	events *events

	mu       sync.Mutex
	boards   map[int]board
	changing map[gpu.UUID]*changes
	polls    map[gpu.UUID]*polls
}

// Open loads and initialises the library file at that path of this process. gpu.ErrDriverNotLoaded: the kernel driver is not loaded or does
// not match the library; a later try may succeed. gpu.ErrDriverReplaced: this process has loaded another file.
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
		lib: driver.Library(), gate: driver.Gate(), driver: driver, opts: opts, events: newEvents(), boards: map[int]board{},
		changing: map[gpu.UUID]*changes{}, polls: map[gpu.UUID]*polls{},
	}
}

// Driver returns the versions of driver and CUDA.
func (s *Session) Driver(ctx context.Context) (gpu.Driver, error) { return s.driver.Driver(ctx) }

// Ping makes one cheap call that fails if the driver is gone.
func (s *Session) Ping(ctx context.Context) error {
	_, err := ask(ctx, s, library.WholeDriver, "nvmlSystemGetDriverVersion", s.lib.SystemGetDriverVersion)
	return err
}

// Close ends the session. Closing twice, or after the driver is gone, is no error. During calls the library stays loaded: the last call to
// return ends the session. It waits for the present wait for events, so that the event set is freed first.
func (s *Session) Close() error {
	s.events.close()
	turn, err := s.events.take(context.Background())
	if err == nil {
		s.freeEvents()
		turn()
	}
	return s.driver.Close()
}

// ask calls the function of the library with this symbol.
func ask[T any](ctx context.Context, s *Session, on library.Target, symbol string, fn func() (T, nvml.Return)) (T, error) {
	return library.Ask(ctx, s.driver, library.Call{On: on, Name: symbol, Limit: s.opts.Deadline}, fn)
}
