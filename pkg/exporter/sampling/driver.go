package sampling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// DefaultDeadline limits one call. A busy or faulty GPU must not delay its round for long.
const DefaultDeadline = 2 * time.Second

// Options configure a Driver.
type Options struct {
	// Find returns the path of the driver's library as this process sees it. Each Open calls it, because drivers are installed and removed.
	Find func() (string, error)
	// Deadline limits one call. Zero means DefaultDeadline.
	Deadline time.Duration
}

// Driver is the driver that is sampled. Do not call Open and Close concurrently with any other method, and make only one call on a GPU at a
// time.
type Driver struct {
	opts Options
	open func(ctx context.Context) (*library.Session, error)

	session *library.Session
	lib     nvml.Interface
	version gpu.Driver
	// nvml is the library's version, empty if it does not report one.
	nvml   string
	events events

	mu      sync.Mutex
	devices map[gpu.UUID]*device
	// listed holds the devices as they were read last, for code that runs concurrently with calls on them.
	listed map[gpu.UUID]listed
}

// listed is a device with its handle and identity. It does not change: it is replaced.
type listed struct {
	handle   nvml.Device
	identity metrics.Identity
}

// New returns a closed driver.
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

// Open begins a session. gpu.ErrDriverReplaced: this process has loaded another library. All other errors may be temporary.
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

// Close frees all samples and ends the session. It waits for running calls, at most for the deadline of one: a call that hangs keeps the
// library initialised until it returns. Closing a closed driver is no error.
func (d *Driver) Close() error {
	if d.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.opts.Deadline)
	defer cancel()
	for _, g := range d.all() {
		if d.session.Gate().Blocked(g.on) != nil {
			continue // the call that hangs uses the device
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
	// calls counts the calls of the present round, without calls for MIG devices.
	calls int
	// unsupported are the questions that this GPU does not support in its MIG mode.
	unsupported map[string]bool
	fields      fieldReader
	rotation    rotation
	migDevices  []migDevice
	maxMIG      int
	gpm         gpm
	processes   processReader
}

// group makes several calls on a GPU as one group, with exclusive access to the device until the last call has returned.
func (d *Driver) group(ctx context.Context, id gpu.UUID, ask func(ctx context.Context, g *device) error) error {
	g, err := d.at(id)
	if err != nil {
		return err
	}
	return d.session.Gate().Group(ctx, g.on, d.opts.Deadline, func(ctx context.Context) error { return ask(ctx, g) })
}

// value makes a call for which a GPU may have no value; then ok is false, and an unsupported call is not repeated. An error ends the round:
// the GPU or the driver is gone.
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

// passing is value for a device that may disappear at any time. Its answers do not apply to the next device.
func passing[T any](ctx context.Context, g *device, symbol string, fn func() (T, nvml.Return)) (answer T, ok bool, err error) {
	answer, err = must(ctx, g, symbol, fn)
	return answer, err == nil, library.Fatal(ctx, err)
}

// must makes a call that every GPU supports.
func must[T any](ctx context.Context, g *device, symbol string, fn func() (T, nvml.Return)) (T, error) {
	g.calls++
	answer, err := library.Ask(ctx, g.driver.session, library.Call{On: g.on, Name: symbol, Limit: g.driver.opts.Deadline}, fn)
	if library.Fatal(ctx, err) != nil {
		g.rotation.last = nil // it may be old when the GPU answers again
	}
	return answer, err
}

// none is the result of functions without a result.
type none = struct{}
