package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

const (
	// DriverName is the driver's name on every Machine.
	DriverName = "gpu.prism.dev"
	// NodeName is the name of the node and of its pool.
	NodeName = "n0"
)

// host is the part of a host that processes use: driver, GPUs and device nodes.
type host interface {
	inventory.Host
	CharDevice(path string) (hostfs.CharDevice, error)
	MIGNodes(gpuMinor, gi, ci int) ([]hostfs.CharDevice, error)
	MIGMonitorNode() (hostfs.CharDevice, error)
	DriverLoad() string
}

// Machine is a node with GPUs, a state directory that survives a reboot, and a CDI directory that does not.
type Machine struct {
	// Node is the hardware; nil in a child process.
	Node *model.Node
	// StateDir and CDIDir are the directories of the plugin.
	StateDir, CDIDir string

	host host
	open inventory.Opener
	// root and library are the driver's files for child processes; empty without files.
	root, library string
	// lost is the claim whose record a test has removed.
	lost string
	// layoutChanges: the layout of the node changes.
	layoutChanges bool
	// fakeTime: acts run in fake time, so that no limit expires on a slow machine.
	fakeTime bool
	// waits: acts let time pass, so that the clock runs.
	waits bool
	// health is the health of the GPUs, which changes in some scenarios; nil in others.
	health *gpuHealth
	// nullFamily: processes include the family null.
	nullFamily bool
	// profiled: the node profiles the processes of claims.
	profiled bool
	hardware hardware
	tool     timeslice.Tool
	gpus     []gpu.UUID
	parts    migState
	// reload unloads the driver, which resets the settings of the hardware, and loads it again. reloadFirst also counts the loads from the
	// first again.
	reload, reloadFirst func() error

	// clusterMu is held while the state of the API server changes.
	clusterMu sync.Mutex

	mu    sync.Mutex
	boots int
	// epoch is the time of the clock when the scenario began; the clock stands still. With the zero value the clock runs, as in machines
	// with fake time and in processes of other tests.
	epoch time.Time
	later time.Duration
}

// hookProgram is the content of the plugin's hook program.
const hookProgram = "#!/bin/true\n"

// newMachine creates the directories below dir.
func newMachine(dir string, node *model.Node) (*Machine, error) {
	m := &Machine{
		Node: node, StateDir: filepath.Join(dir, "plugins", DriverName), CDIDir: filepath.Join(dir, "cdi"), boots: 1,
	}
	m.reload = func() error { return loadAfter(node, node.Loads()) }
	m.reloadFirst = func() error { return loadAfter(node, 0) }
	for _, identity := range node.Identities() {
		m.gpus = append(m.gpus, gpu.UUID(identity.UUID))
	}
	m.parts.layout = everyProfile(node)
	if err := os.MkdirAll(m.StateDir, 0o750); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	if err := os.WriteFile(m.hookImage(), []byte(hookProgram), 0o600); err != nil {
		return nil, fmt.Errorf("making the hook: %w", err)
	}
	return m, nil
}

// loadAfter loads the driver of a node again, and sets the number of loads before that.
func loadAfter(node *model.Node, loads uint64) error {
	version, _ := node.Driver()
	node.Unload()
	return errors.Join(node.CountLoads(loads), node.Load(version))
}

// NewMachine returns a machine with GPUs of one board and directories below dir. Its processes are goroutines.
func NewMachine(dir, board string, gpus int) (*Machine, error) {
	return modelledMachine(dir, model.Uniform(NodeName, board, gpus))
}

func modelledMachine(dir string, spec model.Spec) (*Machine, error) {
	node, err := model.New(spec)
	if err != nil {
		return nil, err
	}
	m, err := newMachine(dir, node)
	if err != nil {
		return nil, err
	}
	around := port.NewHost(node)
	m.host, m.open, m.hardware, m.tool = around, around.Open, modelled{node}, modelledTool{node}
	return m, nil
}

// dir contains the directories of the machine.
func (m *Machine) dir() string { return filepath.Dir(filepath.Dir(m.StateDir)) }

func (m *Machine) hookImage() string { return filepath.Join(m.dir(), "hook") }

// BootID returns the id of the current boot.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("boot-%d", m.boots)
}

// Reboot restarts the machine: the boot ID changes, files on a tmpfs are gone, and the settings of the hardware are reset. No process may
// be running.
func (m *Machine) Reboot() error {
	m.mu.Lock()
	m.boots++
	m.mu.Unlock()
	m.parts.restart()
	for _, dir := range []string{m.CDIDir, m.settings().RunDir()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the files on a tmpfs: %w", err)
		}
	}
	return m.reload()
}

// Now returns the time of the machine's clock.
func (m *Machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.epoch.IsZero() {
		return time.Now().Add(m.later)
	}
	return m.epoch.Add(m.later)
}

// resetCounters starts a scenario with the first boot, and stops the clock if no act waits, so that each run of the scenario leaves the
// same disk.
func (m *Machine) resetCounters() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots, m.later, m.epoch = 1, 0, time.Time{}
	switch {
	case m.waits:
	case m.fakeTime:
		m.epoch = fakeStart
	default:
		m.epoch = time.Now().UTC().Truncate(time.Second)
	}
	m.parts.mps.countPIDs(0)
}

// fakeStart is when fake time begins.
var fakeStart = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// strangeCount is the first value of counters on a machine that continues after a power cut of another one. Its boots, loads of the driver
// and processes differ from the other machine's, so that stale state is not taken for the current one.
const strangeCount = 1_000_000

// countFromStrange sets the counters to that value.
func (m *Machine) countFromStrange() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots = strangeCount
	m.parts.mps.countPIDs(strangeCount)
	return loadAfter(m.Node, strangeCount)
}

// Advance moves the clock forward.
func (m *Machine) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.later += d
}
