package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// machine is a host with a driver that can be installed, unloaded and replaced, and can hang. It refuses calls as a real driver does.
type machine struct {
	mu        sync.Mutex
	installed []hostfs.DriverRoot // in the order of FindDriver
	loaded    string              // version of the kernel module, empty when unloaded
	hangs     bool
	gpus      []gpu.GPU
	faults    map[int]error
	bound     hostfs.FileID // the library that the process has loaded
	opened    int
	closed    int
	editsErr  error
	removed   map[string]bool // device nodes
	unread    bool            // the driver does not identify faulty GPUs
	minors    map[string]int  // by PCI address, as the kernel module reports them
	memory    uint64          // of the system
	sick      map[gpu.UUID]gpu.HealthReading
	polled    []gpu.UUID // by calls of Health
	asked     []gpu.UUID // by calls of Alive
	events    chan gpu.HealthEvent
	// during runs before each call into the driver, outside the lock; may be nil.
	during func(call string)
}

func installation(hostPath, version string, inode uint64) hostfs.DriverRoot {
	return hostfs.DriverRoot{
		HostPath: hostPath, Path: "/host" + hostPath, DevHostPath: "/",
		Library:   "/host" + hostPath + "/usr/lib64/libnvidia-ml.so." + version,
		LibraryID: hostfs.FileID{Inode: inode}, Version: version,
	}
}

// newMachine returns a machine with two GPUs and a driver in /run/nvidia/driver.
func newMachine() *machine {
	return &machine{
		installed: []hostfs.DriverRoot{installation("/run/nvidia/driver", "580.95.05", 1)},
		loaded:    "580.95.05",
		gpus: []gpu.GPU{
			{UUID: "GPU-11111111-aaaa", Index: 0, PCI: gpu.PCI{BusID: "0000:3b:00.0", NUMANode: -1}},
			{UUID: "GPU-22222222-bbbb", Index: 1, Minor: 1, PCI: gpu.PCI{BusID: "0000:5b:00.0", NUMANode: -1}},
		},
		faults: map[int]error{}, sick: map[gpu.UUID]gpu.HealthReading{}, events: make(chan gpu.HealthEvent),
	}
}

// change alters the machine while an inventory may inspect it.
func (m *machine) change(how func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	how(m)
}

func (m *machine) FindDriver(explicit string) (hostfs.DriverRoot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []hostfs.DriverRoot
	for _, root := range m.installed {
		if explicit == "" || explicit == root.HostPath {
			found = append(found, root)
		}
	}
	for _, root := range found {
		if root.Version == m.loaded {
			return root, nil
		}
	}
	if len(found) == 0 {
		return hostfs.DriverRoot{}, fmt.Errorf("no library: %w", gpu.ErrDriverNotLoaded)
	}
	return found[0], nil
}

func (m *machine) KernelModule() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loaded
}

func (m *machine) PCI(busID string) gpu.PCI {
	return gpu.PCI{BusID: busID, Root: "pci" + busID[:7], NUMANode: 1}
}

func (m *machine) GPUMinor(busID string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	minor, known := m.minors[busID]
	if !known {
		return 0, fmt.Errorf("no such GPU: %w", gpu.ErrNotFound)
	}
	return minor, nil
}

func (m *machine) CharDevice(path string) (hostfs.CharDevice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed[path] {
		return hostfs.CharDevice{}, fmt.Errorf("%s: %w", path, gpu.ErrNotFound)
	}
	return hostfs.CharDevice{Path: path}, nil
}

func (m *machine) SystemMemory() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memory == 0 {
		return 0, fmt.Errorf("no memory: %w", gpu.ErrNotFound)
	}
	return m.memory, nil
}

// enter begins a call into the driver. It fails if the context has ended.
func (m *machine) enter(ctx context.Context, call string) error {
	m.mu.Lock()
	during := m.during
	m.mu.Unlock()
	if during != nil {
		during(call)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s on the driver: %w", call, err)
	}
	return nil
}

func (m *machine) open(ctx context.Context, root hostfs.DriverRoot) (Session, error) {
	if err := m.enter(ctx, "open"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	none := hostfs.FileID{}
	if m.bound != none && m.bound != root.LibraryID {
		return nil, gpu.ErrDriverReplaced
	}
	m.bound = root.LibraryID
	if err := m.refusal(root.Version); err != nil {
		return nil, err
	}
	m.opened++
	return &fakeSession{machine: m, version: root.Version}, nil
}

// refusal returns the error of every call while the driver does not answer. The caller holds mu.
func (m *machine) refusal(library string) error {
	switch {
	case m.hangs:
		return fmt.Errorf("nvmlInit_v2 on the driver: %w", gpu.ErrTimeout)
	case m.loaded == "":
		return fmt.Errorf("nvmlInit_v2 on the driver: %w", gpu.ErrDriverNotLoaded)
	case m.loaded != library:
		return fmt.Errorf("library %s does not fit: %w", library, gpu.ErrDriverNotLoaded)
	}
	return nil
}

// fakeSession is open until it is closed or the driver is unloaded; it cannot be opened again.
type fakeSession struct {
	gpu.MemoryLimiter
	gpu.MIGDriver
	gpu.ComputeModes

	machine *machine
	version string
	dead    bool
}

func (s *fakeSession) call() error {
	if s.dead {
		return fmt.Errorf("session is gone: %w", gpu.ErrDriverNotLoaded)
	}
	err := s.machine.refusal(s.version)
	s.dead = err != nil && !errors.Is(err, gpu.ErrTimeout)
	return err
}

func (s *fakeSession) Driver(ctx context.Context) (gpu.Driver, error) {
	if err := s.machine.enter(ctx, "Driver"); err != nil {
		return gpu.Driver{}, err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	if err := s.call(); err != nil {
		return gpu.Driver{}, err
	}
	return gpu.Driver{Version: s.machine.loaded, CUDAVersion: "13.0"}, nil
}

func (s *fakeSession) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	if err := s.machine.enter(ctx, "GPUs"); err != nil {
		return nil, nil, err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	if err := s.call(); err != nil {
		return nil, nil, err
	}
	var usable []gpu.GPU
	var faults []gpu.Fault
	for _, g := range s.machine.gpus {
		if err := s.machine.faults[g.Index]; err != nil {
			fault := gpu.Fault{Index: g.Index, UUID: g.UUID, BusID: g.PCI.BusID, Err: err}
			if s.machine.unread {
				fault.UUID, fault.BusID = "", ""
			}
			faults = append(faults, fault)
			continue
		}
		usable = append(usable, g)
	}
	return usable, faults, nil
}

func (s *fakeSession) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	if err := s.machine.enter(ctx, "CommonEdits"); err != nil {
		return nil, err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	if s.machine.editsErr != nil {
		return nil, s.machine.editsErr
	}
	return &specs.ContainerEdits{Env: []string{"LIBRARY=" + s.version}}, s.call()
}

func (s *fakeSession) Close() error {
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.dead = true
	s.machine.closed++
	return nil
}

// clock lets a test advance the time, and reports how long Run wants to wait.
type clock struct {
	waits chan time.Duration
	ticks chan time.Time
}

func newClock() *clock {
	return &clock{waits: make(chan time.Duration), ticks: make(chan time.Time)}
}

func (c *clock) clock() Clock {
	return Clock{
		Now: func() time.Time { return time.Unix(1000, 0) },
		After: func(d time.Duration) <-chan time.Time {
			c.waits <- d
			return c.ticks
		},
	}
}

// waitLimit bounds how long a test waits for something that must happen.
const waitLimit = time.Minute

// waiting blocks until Run waits, and returns the time to wait.
func (c *clock) waiting(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-c.waits:
		return d
	case <-time.After(waitLimit):
		require.Fail(t, "Run does not wait")
		return 0
	}
}

// tick ends the wait of Run and returns when Run waits again after its inspection.
func (c *clock) tick(t *testing.T) {
	t.Helper()
	select {
	case c.ticks <- time.Unix(2000, 0):
	case <-time.After(waitLimit):
		require.Fail(t, "nothing waits for the tick")
	}
}

// uuids returns the UUIDs of a view's GPUs.
func uuids(v *View) []gpu.UUID {
	var all []gpu.UUID
	for _, g := range v.Node.GPUs {
		all = append(all, g.UUID)
	}
	return slices.Clip(all)
}

// Health returns a reading of a GPU without problems, unless the machine has another one.
func (s *fakeSession) Health(ctx context.Context, g *gpu.GPU) gpu.HealthReading {
	if err := s.machine.enter(ctx, "Health"); err != nil {
		return gpu.HealthReading{UUID: g.UUID, Err: err}
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.machine.polled = append(s.machine.polled, g.UUID)
	if r, ok := s.machine.sick[g.UUID]; ok {
		return r
	}
	return gpu.HealthReading{UUID: g.UUID, Err: s.call(), Events: true}
}

// Alive returns the GPU's fault.
func (s *fakeSession) Alive(_ context.Context, id gpu.UUID) error {
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	s.machine.asked = append(s.machine.asked, id)
	for _, g := range s.machine.gpus {
		if g.UUID == id {
			return s.machine.faults[g.Index]
		}
	}
	return gpu.ErrNotFound
}

// WatchHealth passes on the events of the machine until the context ends.
func (s *fakeSession) WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error {
	for {
		select {
		case e := <-s.machine.events:
			report(e)
		case <-ctx.Done():
			return nil
		}
	}
}

// SetMIGMode makes a call that changes nothing.
func (s *fakeSession) SetMIGMode(ctx context.Context, _ gpu.UUID, _ bool) error {
	if err := s.machine.enter(ctx, "SetMIGMode"); err != nil {
		return err
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	return s.call()
}
