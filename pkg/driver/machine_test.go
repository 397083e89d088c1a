package driver

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/inventory"
)

// machine is a host whose driver can go away and whose GPUs can fail.
type machine struct {
	gpu.MIGDriver

	mu     sync.Mutex
	gone   error
	gpus   []gpu.GPU
	faults []gpu.Fault
}

// twoGPUs is a machine that is well.
func twoGPUs() *machine {
	m := &machine{}
	for i, digits := range []string{"aaaaaaaa", "bbbbbbbb"} {
		m.gpus = append(m.gpus, gpu.GPU{
			UUID: gpu.UUID("GPU-" + digits + "-0000-4000-8000-000000000000"), Index: i, Minor: i,
			PCI: gpu.PCI{BusID: fmt.Sprintf("0000:%02x:00.0", i+1), NUMANode: -1}, Product: gpu.Product{Name: "NVIDIA L40S"},
		})
	}
	return m
}

func (m *machine) FindDriver(string) (hostfs.DriverRoot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return hostfs.DriverRoot{HostPath: "/", Library: "libnvidia-ml.so.1"}, m.gone
}

func (m *machine) KernelModule() string { return "580.95.05" }

func (m *machine) PCI(busID string) gpu.PCI { return gpu.PCI{BusID: busID, NUMANode: -1} }

func (m *machine) Driver(ctx context.Context) (gpu.Driver, error) {
	return gpu.Driver{Version: "580.95.05", CUDAVersion: "13.0"}, ctx.Err()
}

func (m *machine) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gpus, m.faults, ctx.Err()
}

func (m *machine) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{}, ctx.Err()
}

func (m *machine) Close() error { return nil }

// look is an inventory that has looked at the machine once.
func (m *machine) look(t *testing.T) *inventory.Inventory {
	t.Helper()
	inv := inventory.New(inventory.Options{
		Host: m, Open: func(ctx context.Context, _ hostfs.DriverRoot) (inventory.Session, error) { return m, ctx.Err() },
	})
	_ = inv.Refresh(t.Context())
	return inv
}

// change alters the machine and has it looked at.
func (m *machine) change(t *testing.T, inv *inventory.Inventory, how func()) {
	t.Helper()
	m.mu.Lock()
	how()
	gone := m.gone
	m.mu.Unlock()
	require.ErrorIs(t, inv.Refresh(t.Context()), gone)
}

// running runs something until the test ends.
func inBackground(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// published keeps the names of the devices that were published last.
type published struct{ published chan []string }

func (s published) Publish(resources resourceslice.DriverResources) {
	var names []string
	for _, slice := range resources.Pools["n0"].Slices {
		for i := range slice.Devices {
			name := slice.Devices[i].Name
			for _, taint := range slice.Devices[i].Taints {
				name += " " + taint.Key
			}
			names = append(names, name)
		}
	}
	s.published <- names
}

// offeringOf offers what the inventory has, without a configuration.
func offeringOf(t *testing.T, inv *inventory.Inventory) *Offering {
	t.Helper()
	o := NewOffering(OfferingPorts{
		Inventory: inv, NodeName: "n0", Events: make(nodeEvents, 16), Saved: &memory{},
		Read:    func(ctx context.Context) (*v1alpha1.NodeConfig, error) { return nil, ctx.Err() },
		Records: func() ([]*checkpoint.Record, error) { return nil, nil },
	})
	require.True(t, o.Load(t.Context()))
	return o
}

// fakes guards what tests set and what fakes read and count in the background.
var fakes sync.Mutex

// handOver comes between what a test has set and the wait in which it is read: fakes run only while the test waits, which the race
// detector does not know.
func handOver() {
	fakes.Lock()
	defer fakes.Unlock()
}

// ask has a fake answer, unless the context has ended.
func ask[T any](ctx context.Context, answer func() (T, error)) (T, error) {
	fakes.Lock()
	defer fakes.Unlock()
	if err := ctx.Err(); err != nil {
		var nothing T
		return nothing, err
	}
	return answer()
}

// memory keeps a layout as long as the test.
type memory struct {
	layout gpu.Layout
	flags  *v1alpha1.NodeFlags
	err    error
	// untold is an error of Save, which has saved.
	untold error
}

func (m *memory) Load() (Saved, error) {
	fakes.Lock()
	defer fakes.Unlock()
	return Saved{GPUs: m.layout, Flags: m.flags}, m.err
}

func (m *memory) Save(saved Saved) error {
	fakes.Lock()
	defer fakes.Unlock()
	if m.err != nil {
		return m.err
	}
	m.layout, m.flags = maps.Clone(saved.GPUs), saved.Flags
	return m.untold
}

func (m *memory) Sweep() error {
	fakes.Lock()
	defer fakes.Unlock()
	return m.err
}
