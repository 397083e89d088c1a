package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// Session is an open driver. GPUs returns the GPUs that answered, ordered by index, and the others as faults.
type Session interface {
	Driver(ctx context.Context) (gpu.Driver, error)
	GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error)
	CommonEdits(ctx context.Context) (*specs.ContainerEdits, error)
	Close() error
	gpu.MemoryLimiter
	gpu.MIGDriver
	gpu.ComputeModes
	gpu.HealthDriver
}

// Owned reports which instances claims own, or are about to own.
type Owned func(id gpu.UUID, instance *gpu.Instance) bool

// Opener opens the driver of an installation. gpu.ErrDriverReplaced: the process has loaded another library.
type Opener func(ctx context.Context, root hostfs.DriverRoot) (Session, error)

// Host finds drivers and GPUs; *hostfs.FS is one.
type Host interface {
	FindDriver(explicit string) (hostfs.DriverRoot, error)
	KernelModule() string
	PCI(busID string) gpu.PCI
	// GPUMinor returns the minor number of a GPU's device node as the kernel module reports it, and SystemMemory the system's memory in
	// bytes. Each is used if the driver's library has no answer; gpu.ErrNotFound: the system has none either.
	GPUMinor(busID string) (int, error)
	SystemMemory() (uint64, error)
	// CharDevice returns the host's device node at a path; any error: containers cannot get it.
	CharDevice(path string) (hostfs.CharDevice, error)
}

// Options configure an Inventory.
type Options struct {
	Host Host
	Open Opener
	// DriverRoot is the host's path of the only installation to use; empty detects it.
	DriverRoot string
	// Owned returns which instances belong to claims; all others are an administrator's. It is called only if instances exist. May be nil.
	// After an error the view keeps the administrator's instances that it showed before.
	Owned func() (Owned, error)
	// Interval is the time between two inspections of an open driver, and the longest between two tries to open one. Zero means
	// DefaultInterval.
	Interval time.Duration
	// MayHaveGPU reports whether the machine may have a GPU. Without a GPU, the inventory searches for a driver only every AbsentInterval.
	// May be nil.
	MayHaveGPU func() bool
	// MemoryLimits: this node can limit the GPU memory of containers if the driver can.
	MemoryLimits bool
	// Clock is replaced in tests. The zero value uses the time of the machine.
	Clock Clock
	// Polled is called with the health of the GPUs at the end of every inspection, before the new view is stored. May be nil.
	Polled func(gpu.HealthPoll)
}

// Clock reads and waits for time.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

const (
	// DefaultInterval is the default time between two inspections, and so the longest time until an unloaded driver is noticed.
	DefaultInterval = 10 * time.Second
	// firstRetry is doubled after each try until the interval is reached.
	firstRetry = 500 * time.Millisecond
)

// Inventory tracks the driver and the GPUs of this node. It is safe for concurrent use.
type Inventory struct {
	opts Options

	view   atomic.Pointer[View]
	status atomic.Pointer[Status]
	// open is the session while it is usable.
	open atomic.Pointer[Session]

	// inspecting holds a token during an inspection; it guards the following fields.
	inspecting chan struct{}
	session    Session
	driver     gpu.Driver            // of the session
	common     *specs.ContainerEdits // of the session; nil until it is known
	seen       map[gpu.UUID]gpu.GPU  // the GPUs of all sessions, with their last facts
	bound      hostfs.DriverRoot     // the installation whose library this process works with, from the first session on
}

// errNotInspected is the state before the first inspection.
var errNotInspected = errors.New("the driver was not probed yet")

// New returns an inventory that has not inspected yet.
func New(opts Options) *Inventory {
	if opts.Interval == 0 {
		opts.Interval = DefaultInterval
	}
	if opts.Clock.Now == nil {
		opts.Clock.Now = time.Now
	}
	if opts.Clock.After == nil {
		opts.Clock.After = time.After
	}
	i := &Inventory{opts: opts, inspecting: make(chan struct{}, 1), seen: map[gpu.UUID]gpu.GPU{}}
	i.view.Store(newView(errNotInspected))
	i.status.Store(&Status{Err: errNotInspected})
	return i
}

// Current returns the latest view, never nil.
func (i *Inventory) Current() *View { return i.view.Load() }

// MIGMode returns the MIG mode in the latest view; false if the GPU is unknown or does not support MIG.
func (i *Inventory) MIGMode(id gpu.UUID) (mode gpu.MIGMode, known bool) {
	for _, g := range i.Current().Node.GPUs {
		if g.UUID == id && g.MIG != nil {
			return g.MIG.Mode, true
		}
	}
	return gpu.MIGMode{}, false
}

// Status returns the result of the latest inspection.
func (i *Inventory) Status() Status { return *i.status.Load() }

// Refresh inspects once and publishes the result. The error, which is also in the view, says why there is no usable driver.
// gpu.ErrDriverReplaced is final for this process. If its context interrupts the inspection, Refresh changes nothing.
func (i *Inventory) Refresh(ctx context.Context) error {
	select {
	case i.inspecting <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for another inspection of the driver: %w", ctx.Err())
	}
	defer func() { <-i.inspecting }()
	next, err := i.inspect(ctx)
	if ctxErr := ctx.Err(); ctxErr != nil {
		// An interrupted inspection says nothing about the driver.
		return fmt.Errorf("inspecting the driver: %w", ctxErr)
	}
	if err != nil {
		next = newView(err)
	}
	i.poll(ctx, next, "")
	i.publish(next)
	return err
}

// Run inspects regularly until the context ends, and then returns nil. It returns gpu.ErrDriverReplaced if only a new process can continue.
// It waits before the first inspection: call Refresh first, and call Close when nothing needs the driver any more.
func (i *Inventory) Run(ctx context.Context) error {
	wait := firstRetry
	if i.Current().Err == nil {
		wait = i.opts.Interval
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.opts.Clock.After(i.pause(wait)):
		}
		before := i.Current()
		err := i.Refresh(ctx)
		if after := i.Current(); after != before {
			logChange(ctx, after)
		}
		switch {
		case errors.Is(err, gpu.ErrDriverReplaced):
			return err
		case err != nil:
			wait = min(2*wait, i.opts.Interval)
			if before.Err == nil {
				wait = firstRetry
			}
		default:
			wait = i.opts.Interval
		}
	}
}

// logChange logs changes of the driver and the GPUs for the operator.
func logChange(ctx context.Context, v *View) {
	logger := logr.FromContextOrDiscard(ctx)
	if v.Err != nil {
		logger.Info("No usable NVIDIA driver", "reason", v.Err.Error())
		return
	}
	logger.Info("GPUs changed", "driver", v.Node.Driver.Version, "gpus", len(v.Node.GPUs), "faults", len(v.Node.Faults))
	for _, fault := range v.Node.Faults {
		logger.Info("GPU does not answer", "index", fault.Index, "gpu", fault.UUID, "pciBusID", fault.BusID,
			"reason", fault.Err.Error())
	}
}

// inspect reads the present state of driver and GPUs. The caller holds inspecting.
func (i *Inventory) inspect(ctx context.Context) (*View, error) {
	root, err := i.find()
	if err != nil {
		i.closeSession()
		return nil, err
	}
	if i.bound.Library != "" && i.bound.LibraryID != root.LibraryID {
		i.closeSession()
		return nil, fmt.Errorf("%w: %s replaced %s", gpu.ErrDriverReplaced, root.Library, i.bound.Library)
	}
	if i.session != nil && root.HostPath != i.bound.HostPath {
		i.closeSession()
	}
	if i.session == nil {
		if err := i.openSession(ctx, root); err != nil {
			return nil, err
		}
	}
	next, err := i.discover(ctx, root)
	switch {
	case err == nil:
		session := i.session // a copy: readers run at any time, the field is written under inspecting
		i.open.Store(&session)
	case errors.Is(err, gpu.ErrTimeout):
		// A driver that hangs is not closed: that call would hang as well.
	case interrupted(ctx, err):
		// The driver did not say this, and claims that are being prepared need the session.
	default:
		i.closeSession()
	}
	return next, err
}

// interrupted reports whether an error comes from the end of the context and not from the driver. An answer that the driver gave before the
// context ended still counts.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// find returns the installation to use. If no kernel module shows which of several is in use, it keeps the known one.
func (i *Inventory) find() (hostfs.DriverRoot, error) {
	root, err := i.opts.Host.FindDriver(i.opts.DriverRoot)
	if err != nil || i.bound.Library == "" || root.LibraryID == i.bound.LibraryID || i.opts.Host.KernelModule() != "" {
		return root, err
	}
	if known, err := i.opts.Host.FindDriver(i.bound.HostPath); err == nil && known.LibraryID == i.bound.LibraryID {
		return known, nil
	}
	return root, nil
}

// openSession opens the driver.
func (i *Inventory) openSession(ctx context.Context, root hostfs.DriverRoot) error {
	session, err := i.opts.Open(ctx, root)
	if err != nil {
		return err
	}
	i.session, i.bound = session, root
	return nil
}

// learn reads the common edits, which do not change during a session. If the inspection is interrupted here, the next one continues with
// the session.
func (i *Inventory) learn(ctx context.Context) error {
	if i.common != nil {
		return nil
	}
	common, err := i.session.CommonEdits(ctx)
	if err != nil {
		return err
	}
	i.common = common
	return nil
}

// checkVersion refuses a driver whose version changed although the library did not.
func (i *Inventory) checkVersion(ctx context.Context) error {
	driver, err := i.session.Driver(ctx)
	if err != nil {
		return err
	}
	if known := i.driver.Version; known != "" && known != driver.Version {
		return fmt.Errorf("%w: driver %s replaced %s", gpu.ErrDriverReplaced, driver.Version, known)
	}
	i.driver = driver
	return nil
}

// discover lists the GPUs of the open session and adds their locations on the host.
func (i *Inventory) discover(ctx context.Context, root hostfs.DriverRoot) (*View, error) {
	if err := i.checkVersion(ctx); err != nil {
		return nil, err
	}
	if err := i.learn(ctx); err != nil {
		return nil, err
	}
	gpus, faults, err := i.gpus(ctx)
	if err != nil {
		return nil, err
	}
	gpus, faults = i.locate(root, gpus, faults)
	slices.SortFunc(gpus, func(a, b gpu.GPU) int { return cmp.Compare(a.Index, b.Index) })
	gpu.AssignIDs(gpus)
	next := newView(nil)
	next.Node = &gpu.Node{Driver: i.driver, GPUs: gpus, Faults: faults}
	next.Common, next.Root = i.common, root
	return next, nil
}

// publish replaces the current view if the next one differs. The caller holds inspecting.
func (i *Inventory) publish(next *View) {
	now := i.opts.Clock.Now()
	last := i.view.Load()
	if !last.same(next) {
		next.At = now
		i.view.Store(next)
		close(last.replaced)
	}
	i.status.Store(i.Status().after(next, now))
}

// closeSession closes the session if one is open. The caller holds inspecting.
func (i *Inventory) closeSession() {
	if i.session == nil {
		return
	}
	i.open.Store(nil)
	// If it cannot be closed, it has ended with the driver.
	_ = i.session.Close()
	i.session, i.common = nil, nil
}

// Close closes the driver, also for callers of MIGDriver: their next call is refused.
func (i *Inventory) Close() {
	i.inspecting <- struct{}{}
	defer func() { <-i.inspecting }()
	i.closeSession()
}
