package sampling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// DefaultDeadline is the time of one call. A GPU that is busy or ill must not hold up its round for long.
const DefaultDeadline = 2 * time.Second

// Options are what a Driver works with.
type Options struct {
	// Find returns the path of the driver's library as this process sees it. It is asked at each Open, as drivers come and go.
	Find func() (string, error)
	// Deadline is how long one call may take. Zero means DefaultDeadline.
	Deadline time.Duration
}

// Driver is the driver that is sampled. Open and Close come one at a time and beside no other call, the calls on one GPU one at a time.
type Driver struct {
	opts Options
	open func(ctx context.Context) (*library.Session, error)

	session *library.Session
	lib     nvml.Interface
	version gpu.Driver
	// nvml is the library's own version, empty where it does not say.
	nvml   string
	events events

	mu      sync.Mutex
	devices map[gpu.UUID]*device
	// listed is what was read of the devices last, for what runs beside the calls on them.
	listed map[gpu.UUID]listed
}

// listed is a device whose handle and identity do not change: another one takes its place.
type listed struct {
	handle   nvml.Device
	identity metrics.Identity
}

// New returns a driver that is not open.
func New(opts Options) *Driver {
	if opts.Deadline == 0 {
		opts.Deadline = DefaultDeadline
	}
	d := &Driver{opts: opts}
	d.open = func(ctx context.Context) (*library.Session, error) {
		path, err := opts.Find()
		if err != nil {
			return nil, err
		}
		return library.Open(ctx, path, opts.Deadline)
	}
	return d
}

// Open begins a session. gpu.ErrDriverReplaced: this process has loaded another library. Any other error may pass.
func (d *Driver) Open(ctx context.Context) error {
	session, err := d.open(ctx)
	if err != nil {
		return err
	}
	d.session, d.lib = session, session.Library()
	d.devices, d.listed, d.events = map[gpu.UUID]*device{}, map[gpu.UUID]listed{}, events{}
	if d.version, err = session.Driver(ctx); err != nil {
		return errors.Join(err, d.Close())
	}
	d.nvml, err = library.Ask(ctx, session, library.Call{On: library.WholeDriver, Name: "nvmlSystemGetNVMLVersion", Limit: d.opts.Deadline},
		d.lib.SystemGetNVMLVersion)
	if library.Fatal(ctx, err) != nil {
		return errors.Join(err, d.Close())
	}
	return nil
}

// Close frees all samples and ends the session. It waits for calls that have not returned, as long as one may take: a call that hangs
// keeps the library initialised until it returns. Closing a closed driver is no error.
func (d *Driver) Close() error {
	if d.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.opts.Deadline)
	defer cancel()
	for _, g := range d.all() {
		if d.session.Gate().Blocked(g.on) != nil {
			continue // the call that hangs has the device
		}
		for target := range g.gpm.targets {
			_ = g.release(ctx, target) // a GPU that does not answer keeps its samples until it does
		}
	}
	d.closeEvents(ctx)
	session := d.session
	d.session, d.lib = nil, nil
	if err := session.Close(); err != nil {
		return err
	}
	select {
	case <-session.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the driver's library: a call has not returned: %w", gpu.ErrTimeout)
	}
}

// all lists the devices.
func (d *Driver) all() []*device {
	d.mu.Lock()
	defer d.mu.Unlock()
	devices := make([]*device, 0, len(d.devices))
	for _, g := range d.devices {
		devices = append(devices, g)
	}
	return devices
}

// at finds a GPU that was listed.
func (d *Driver) at(id gpu.UUID) (*device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.devices[id]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("sampling %s: %w", id, gpu.ErrNotFound)
}

// device is a GPU of this session.
type device struct {
	driver   *Driver
	on       library.Target
	handle   nvml.Device
	identity metrics.Identity
	// calls counts those of the present round, without those for MIG devices.
	calls int
	// unsupported are the questions that this GPU, in its MIG mode, cannot answer.
	unsupported map[string]bool
	fields      fieldReader
	rotation    rotation
	migDevices  []migDevice
	maxMIG      int
	gpm         gpm
	processes   processReader
}

// group asks a GPU several questions as one group. What they change of the device is theirs alone until the last one was answered.
func (d *Driver) group(ctx context.Context, id gpu.UUID, ask func(ctx context.Context, g *device) error) error {
	g, err := d.at(id)
	if err != nil {
		return err
	}
	return d.session.Gate().Group(ctx, g.on, d.opts.Deadline, func(ctx context.Context) error { return ask(ctx, g) })
}

// value asks for something that a GPU may have no value for; then ok is false, and what the GPU does not support is not asked again. An
// error ends the round: the GPU or the driver is gone.
func value[T any](ctx context.Context, g *device, symbol string, fn func() (T, nvml.Return)) (answer T, ok bool, err error) {
	return valueAs(ctx, g, symbol, symbol, fn)
}

// valueAs is value for a function that answers several questions, of which a GPU may support some.
func valueAs[T any](ctx context.Context, g *device, question, symbol string, fn func() (T, nvml.Return)) (answer T, ok bool, err error) {
	if g.unsupported[question] {
		return answer, false, nil
	}
	answer, err = must(ctx, g, symbol, fn)
	var unsupported *gpu.UnsupportedError
	if errors.As(err, &unsupported) {
		g.unsupported[question] = true
	}
	return answer, err == nil, library.Fatal(ctx, err)
}

// passing is value for a device that may be gone the next moment, whose answers say nothing about the next one.
func passing[T any](ctx context.Context, g *device, symbol string, fn func() (T, nvml.Return)) (answer T, ok bool, err error) {
	answer, err = must(ctx, g, symbol, fn)
	return answer, err == nil, library.Fatal(ctx, err)
}

// must asks for something that there is.
func must[T any](ctx context.Context, g *device, symbol string, fn func() (T, nvml.Return)) (T, error) {
	g.calls++
	answer, err := library.Ask(ctx, g.driver.session, library.Call{On: g.on, Name: symbol, Limit: g.driver.opts.Deadline}, fn)
	if library.Fatal(ctx, err) != nil {
		g.rotation.last = nil // it may be old when the GPU answers again
	}
	return answer, err
}

// none is the answer of functions that only do something.
type none = struct{}
