package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

const (
	// DriverName is the driver's name on every Machine.
	DriverName = "gpu.prism.dev"
	// NodeName is the node's, and its pool's.
	NodeName = "n0"
)

// Machine is a node with GPUs, a state directory that a reboot keeps, and a CDI directory that it does not.
type Machine struct {
	// Node is the hardware.
	Node *model.Node
	// StateDir and CDIDir are the plugin's.
	StateDir, CDIDir string

	host *port.Host

	mu    sync.Mutex
	boots int
	later time.Duration
}

// NewMachine makes a machine with GPUs of one board whose directories are below dir.
func NewMachine(dir, board string, gpus int) (*Machine, error) {
	node, err := model.New(model.Uniform(NodeName, board, gpus))
	if err != nil {
		return nil, err
	}
	m := &Machine{
		Node: node, StateDir: filepath.Join(dir, "plugin"), CDIDir: filepath.Join(dir, "cdi"), host: port.NewHost(node), boots: 1,
	}
	if err := os.MkdirAll(m.StateDir, 0o750); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	return m, nil
}

// BootID is that of the present boot.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("boot-%d", m.boots)
}

// Reboot starts the machine again: the boot ID is another one, the CDI directory is gone, and the hardware has forgotten its
// settings. No process may run.
func (m *Machine) Reboot() error {
	m.mu.Lock()
	m.boots++
	m.mu.Unlock()
	if err := os.RemoveAll(m.CDIDir); err != nil {
		return fmt.Errorf("wiping the CDI directory: %w", err)
	}
	return m.ReloadDriver()
}

// ReloadDriver unloads the driver, with which the hardware forgets its settings, and loads it again.
func (m *Machine) ReloadDriver() error {
	version, _ := m.Node.Driver()
	m.Node.Unload()
	return m.Node.Load(version)
}

// Now is the machine's clock.
func (m *Machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.later)
}

// Advance sets the clock forward.
func (m *Machine) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.later += d
}

func cdiKind() string { return cdi.Kind(DriverName) }
