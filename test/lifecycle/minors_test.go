package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// renumbering simulates a host on which each change of its MIG mode changes the minor number of a GPU. NVML does not rule that out.
type renumbering struct {
	host

	mu      sync.Mutex
	changes map[gpu.UUID]int
	// minors are the initial minor numbers.
	minors map[gpu.UUID]int
}

// numbersApart is added to the minor number by a change of the mode. It is above the number of GPUs, so that minors are unique.
const numbersApart = 16

// renumber makes the machine such a host.
func (m *Machine) renumber() *renumbering {
	r := &renumbering{host: m.host, changes: map[gpu.UUID]int{}, minors: map[gpu.UUID]int{}}
	for _, identity := range m.Node.Identities() {
		r.minors[gpu.UUID(identity.UUID)] = identity.Minor
	}
	open := m.open
	m.host = r
	m.open = func(ctx context.Context, root hostfs.DriverRoot) (inventory.Session, error) {
		session, err := open(ctx, root)
		return renumberedSession{session, r}, err
	}
	return r
}

// now returns a GPU's current minor number. The lock is held.
func (r *renumbering) now(id gpu.UUID) int { return r.minors[id] + numbersApart*r.changes[id] }

func (r *renumbering) minor(id gpu.UUID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now(id)
}

// first returns the initial minor number of the GPU that now has this one.
func (r *renumbering) first(minor int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, first := range r.minors {
		if r.now(id) == minor {
			return first, nil
		}
	}
	return 0, fmt.Errorf("finding GPU %d: %w", minor, gpu.ErrNotFound)
}

func (r *renumbering) CharDevice(path string) (hostfs.CharDevice, error) {
	var minor int
	if _, err := fmt.Sscanf(path, "/dev/nvidia%d", &minor); err != nil {
		return r.host.CharDevice(path)
	}
	if _, err := r.first(minor); err != nil {
		return hostfs.CharDevice{}, err
	}
	return hostfs.CharDevice{Path: path, Major: 195, Minor: uint32(minor)}, nil
}

func (r *renumbering) MIGNodes(minor, gi, ci int) ([]hostfs.CharDevice, error) {
	first, err := r.first(minor)
	if err != nil {
		return nil, err
	}
	return r.host.MIGNodes(first, gi, ci)
}

type renumberedSession struct {
	inventory.Session
	host *renumbering
}

func (s renumberedSession) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	err := s.Session.SetMIGMode(ctx, id, on)
	if err == nil {
		s.host.changes[id]++
	}
	return err
}

func (s renumberedSession) GPUs(ctx context.Context) ([]gpu.GPU, []gpu.Fault, error) {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	gpus, faults, err := s.Session.GPUs(ctx)
	for i := range gpus {
		gpus[i].Minor = s.host.now(gpus[i].UUID)
	}
	return gpus, faults, err
}

// injected returns the device nodes in a claim's spec, with their minor numbers.
func (m *Machine) injected(t *testing.T, claim string) map[string]int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.CDIDir, "*"+claim+"*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var spec specs.Spec
	require.NoError(t, json.Unmarshal(raw, &spec))
	nodes := map[string]int64{}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes[n.Path] = n.Minor
		}
	}
	return nodes
}

// With the old number, a claim would get the device node of another GPU, or of none. That also holds while the GPUs cannot be inspected
// after the change.
func TestPrepare_MIGModeChangesMinor_SpecHasNewOne(t *testing.T) {
	t.Parallel()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	numbers := m.renumber()
	// fails is the number of inspections that fail from now on, sets the number of changes of a mode.
	fails, sets := 0, 0
	p, err := m.Start(t.Context(), Wiring{CallTimeout: 5 * time.Second, FaultPoint: func(site string, effect func() error) error {
		switch {
		case site == "nvml.SetMIGMode":
			sets++
		case site == "inventory.Refresh" && fails > 0:
			fails--
			return errRefused
		}
		return effect()
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	id := m.gpus[3]
	for n, c := range []struct {
		fails int
		act   Act
	}{
		{0, preparesMIG("partition", large)},
		{0, prepares("whole", 3)},
		{1, preparesMIG("partition", large)},
		{2, prepares("whole", 3)},
	} {
		fails = c.fails
		r, err := p.Prepare(t.Context(), m.claim(c.act))
		require.NoError(t, err)
		assert.Zero(t, fails)
		assert.Equal(t, n+1, sets)
		minor := numbers.minor(id)
		assert.EqualValues(t, minor, m.injected(t, r.Claim.UID)[fmt.Sprintf("/dev/nvidia%d", minor)], "%d", n)
		require.NoError(t, m.CheckInvariants(t.Context(), r.Claim.UID))
		require.NoError(t, p.Unprepare(t.Context(), r.Claim.UID))
	}

	fails = 1000
	for _, act := range []Act{preparesMIG("partition", large), prepares("whole", 3)} {
		_, err = p.Prepare(t.Context(), m.claim(act))
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, "could not be inspected since its MIG mode was turned on")
		require.ErrorContains(t, err, "(will be retried)")
		require.NoError(t, m.CheckEmpty(t.Context()))
		assert.Equal(t, 5, sets, "the mode is not changed back for a claim that needs the previous mode either")
	}
	fails = 0
	_, err = p.Prepare(t.Context(), m.claim(preparesMIG("partition", large)))
	require.NoError(t, err)
	assert.Equal(t, 5, sets)
	require.NoError(t, m.CheckInvariants(t.Context(), "partition"))
	require.NoError(t, p.Unprepare(t.Context(), "partition"))
	require.NoError(t, m.CheckEmpty(t.Context()))
}
