// Package fakes replaces a host, its NVIDIA driver and the API server's Events in the tests of several packages.
package fakes

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// Machine is a host whose NVIDIA driver can go away and whose GPUs can fail. The zero value is without a GPU.
type Machine struct {
	gpu.MemoryLimiter
	gpu.MIGDriver
	gpu.ComputeModes

	mu sync.Mutex
	// Gone is the reason why there is no driver, nil while there is one. Change this and the next fields with Change, or before the first
	// Inventory.
	Gone   error
	GPUs   []gpu.GPU
	Faults []gpu.Fault
	// Removed lists the missing device nodes; all others exist.
	Removed map[string]bool
}

// TwoGPUs returns a healthy machine with two L40S.
func TwoGPUs() *Machine {
	m := &Machine{}
	for i, digits := range []string{"aaaaaaaa", "bbbbbbbb"} {
		m.GPUs = append(m.GPUs, gpu.GPU{
			UUID: gpu.UUID("GPU-" + digits + "-0000-4000-8000-000000000000"), Index: i, Minor: i,
			PCI: gpu.PCI{BusID: fmt.Sprintf("0000:%02x:00.0", i+1), NUMANode: -1}, Product: gpu.Product{Name: "NVIDIA L40S"},
		})
	}
	return m
}

// session is an inventory's session on the machine.
type session struct{ *Machine }

func (m session) FindDriver(string) (hostfs.DriverRoot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return hostfs.DriverRoot{HostPath: "/", Library: "libnvidia-ml.so.1"}, m.Gone
}

func (session) KernelModule() string { return "580.95.05" }

func (session) PCI(busID string) gpu.PCI { return gpu.PCI{BusID: busID, NUMANode: -1} }

func (session) GPUMinor(busID string) (int, error) {
	return 0, fmt.Errorf("finding the minor number of %s: %w", busID, gpu.ErrNotFound)
}

func (m session) CharDevice(path string) (hostfs.CharDevice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Removed[path] {
		return hostfs.CharDevice{}, fmt.Errorf("checking device node %s: %w", path, gpu.ErrNotFound)
	}
	return hostfs.CharDevice{Path: path}, nil
}

func (session) SystemMemory() (uint64, error) {
	return 0, fmt.Errorf("reading the system's memory: %w", gpu.ErrNotFound)
}

func (session) Driver(ctx context.Context) (gpu.Driver, error) {
	return gpu.Driver{Version: "580.95.05", CUDAVersion: "13.0"}, ctx.Err()
}

func (m session) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Machine.GPUs, m.Faults, ctx.Err()
}

func (session) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{}, ctx.Err()
}

func (session) Close() error { return nil }

// Inventory returns an inventory that has inspected the machine once.
func (m *Machine) Inventory(t testing.TB) *inventory.Inventory {
	t.Helper()
	inv := m.NewInventory()
	_ = inv.Refresh(t.Context())
	return inv
}

// NewInventory returns an inventory that has not inspected the machine yet.
func (m *Machine) NewInventory() *inventory.Inventory {
	return inventory.New(inventory.Options{
		Host: session{m}, Open: func(ctx context.Context, _ hostfs.DriverRoot) (inventory.Session, error) {
			return session{m}, ctx.Err()
		},
	})
}

// Set changes the machine without an inspection.
func (m *Machine) Set(how func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	how()
}

// Change changes the machine and inspects it.
func (m *Machine) Change(t testing.TB, inv *inventory.Inventory, how func()) {
	t.Helper()
	m.Set(how)
	require.ErrorIs(t, inv.Refresh(t.Context()), m.Gone)
}

// Health returns a reading of a GPU without problems.
func (session) Health(_ context.Context, g *gpu.GPU) gpu.HealthReading {
	return gpu.HealthReading{UUID: g.UUID, Events: true}
}

// WatchHealth waits for the context to end.
func (session) WatchHealth(ctx context.Context, _ func(gpu.HealthEvent)) error {
	<-ctx.Done()
	return nil
}

// Alive returns nil: the GPU responds.
func (session) Alive(ctx context.Context, _ gpu.UUID) error { return ctx.Err() }
