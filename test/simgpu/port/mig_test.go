package port

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// partitioner is the product's port for MIG.
type partitioner interface {
	MIGMode(ctx context.Context, id gpu.UUID) (gpu.MIGMode, error)
	SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error
	Instances(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error)
	Occupied(ctx context.Context, id gpu.UUID) ([]gpu.Instance, error)
	Instance(ctx context.Context, id gpu.UUID, gi int, device gpu.MIGUUID) (*gpu.Instance, error)
	CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (gi int, err error)
	CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (gpu.ComputeInstance, error)
	DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error
	DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error
}

// machine is a node with one GPU and an open session.
type machine struct {
	partitioner
	t    *testing.T
	node *model.Node
	host *Host
	id   gpu.UUID
}

func newMachine(t *testing.T, spec model.Spec) *machine {
	t.Helper()
	node, err := model.New(spec)
	require.NoError(t, err)
	host := NewHost(node)
	root, err := host.FindDriver("")
	require.NoError(t, err)
	session, err := host.Open(t.Context(), root)
	require.NoError(t, err)
	return &machine{session.(partitioner), t, node, host, gpu.UUID(node.Identities()[0].UUID)}
}

func inMIGMode(t *testing.T, board string) *machine {
	t.Helper()
	m := newMachine(t, model.Uniform("node-a", board, 1))
	require.NoError(t, m.SetMIGMode(t.Context(), m.id, true))
	return m
}

// seen returns the GPU as a session reports it.
func (m *machine) seen() gpu.GPU {
	m.t.Helper()
	gpus, faults, err := m.partitioner.(*Session).GPUs(m.t.Context())
	require.NoError(m.t, err)
	require.Empty(m.t, faults)
	require.Len(m.t, gpus, 1)
	return gpus[0]
}

func (m *machine) create(profile int, at gpu.Placement) int {
	m.t.Helper()
	gi, err := m.CreateInstance(m.t.Context(), m.id, profile, at)
	require.NoError(m.t, err)
	return gi
}

func (m *machine) instances() []gpu.Instance {
	m.t.Helper()
	list, err := m.Instances(m.t.Context(), m.id)
	require.NoError(m.t, err)
	return list
}

func TestSession_MIGDevice_CreatedAndDestroyed(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	mode, err := m.MIGMode(t.Context(), m.id)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{Enabled: true, Pending: true}, mode)
	gi := m.create(9, gpu.Placement{Start: 4, Size: 4})
	half := gpu.Instance{ID: 2, Profile: 9, Placement: gpu.Placement{Start: 4, Size: 4}}
	assert.Equal(t, []gpu.Instance{half}, m.instances(), "half made")
	_, err = m.host.MIGNodes(0, gi, 0)
	require.ErrorIs(t, err, gpu.ErrNotFound)

	ci, err := m.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	assert.Equal(t, gpu.ComputeInstance{Slices: 3, UUID: gpu.MIGUUID(m.node.Snapshot().GPUs[0].MIGDevices[0].UUID)}, ci)
	full := half
	full.Compute = []gpu.ComputeInstance{ci}
	small := m.create(19, gpu.Placement{Start: 0, Size: 1})
	assert.Equal(t, []gpu.Instance{full, {ID: small, Profile: 19, Placement: gpu.Placement{Size: 1}}}, m.instances())

	nodes, err := m.host.MIGNodes(0, gi, 0)
	require.NoError(t, err)
	want := []hostfs.CharDevice{
		{Path: "/dev/nvidia-caps/nvidia-cap21", Major: 236, Minor: 21}, {Path: "/dev/nvidia-caps/nvidia-cap22", Major: 236, Minor: 22},
	}
	assert.Equal(t, want, nodes)
	seen, err := m.host.CharDevice(want[1].Path)
	require.NoError(t, err)
	assert.Equal(t, want[1], seen)

	require.ErrorIs(t, m.DestroyInstance(t.Context(), m.id, gi), gpu.ErrInUse, "it contains a compute instance")
	require.NoError(t, m.DestroyComputeInstance(t.Context(), m.id, gi, 0))
	require.ErrorIs(t, m.DestroyComputeInstance(t.Context(), m.id, gi, 0), gpu.ErrNotFound)
	require.NoError(t, m.DestroyInstance(t.Context(), m.id, gi))
	require.ErrorIs(t, m.DestroyInstance(t.Context(), m.id, gi), gpu.ErrNotFound)
	require.NoError(t, m.DestroyInstance(t.Context(), m.id, small))
	require.NoError(t, m.SetMIGMode(t.Context(), m.id, false))
	assert.Empty(t, m.instances())
	require.ErrorIs(t, m.DestroyInstance(t.Context(), m.id, gi), gpu.ErrNotFound, "outside MIG mode")
	_, err = m.host.CharDevice(want[1].Path)
	require.ErrorIs(t, err, gpu.ErrNotFound)
}

func TestSession_MIG_Refused(t *testing.T) {
	m := newMachine(t, model.Uniform("node-a", "h100-80", 1))
	var unsupported *gpu.UnsupportedError
	_, err := m.CreateInstance(t.Context(), m.id, 19, gpu.Placement{Size: 1})
	require.ErrorAs(t, err, &unsupported, "not in MIG mode")
	assert.Empty(t, m.instances())
	_, err = m.CreateComputeInstance(t.Context(), m.id, 1)
	require.ErrorIs(t, err, gpu.ErrNotFound)
	_, err = m.MIGMode(t.Context(), "GPU-nothing")
	require.ErrorIs(t, err, gpu.ErrNotFound)

	m = inMIGMode(t, "h100-80")
	gi := m.create(9, gpu.Placement{Size: 4})
	_, err = m.CreateInstance(t.Context(), m.id, 19, gpu.Placement{Start: 3, Size: 1})
	require.ErrorIs(t, err, gpu.ErrInUse, "occupied")
	_, err = m.CreateInstance(t.Context(), m.id, 19, gpu.Placement{Start: 7, Size: 1})
	require.ErrorIs(t, err, model.InvalidArgument, "no such placement")
	require.ErrorIs(t, m.SetMIGMode(t.Context(), m.id, false), gpu.ErrInUse, "an instance exists")
	ci, err := m.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	_, err = m.CreateComputeInstance(t.Context(), m.id, gi)
	require.ErrorIs(t, err, gpu.ErrInUse, "full")
	release, err := m.node.Hold(string(ci.UUID))
	require.NoError(t, err)
	require.ErrorIs(t, m.DestroyComputeInstance(t.Context(), m.id, gi, ci.ID), gpu.ErrInUse)
	release()
	require.NoError(t, m.DestroyComputeInstance(t.Context(), m.id, gi, ci.ID))

	bare := newMachine(t, model.Uniform("node-a", "t4", 1))
	_, err = bare.MIGMode(t.Context(), bare.id)
	require.ErrorAs(t, err, &unsupported)
	require.ErrorAs(t, bare.SetMIGMode(t.Context(), bare.id, true), &unsupported)
	assert.Empty(t, bare.instances())
}

func TestGPUs_MIG_ProfilesAndInstances(t *testing.T) {
	m := newMachine(t, model.Uniform("node-a", "a30", 1))
	seen := m.seen().MIG
	assert.Equal(t, gpu.MIGMode{NeedsReset: true}, seen.Mode)
	assert.Equal(t, []string{"1g.6gb", "2g.12gb", "4g.24gb", "1g.6gb+me", "2g.12gb+me"}, seen.ProfileNames(), "NVML's order")
	assert.Equal(t, gpu.MIGProfile{
		ID: 6, Name: "2g.12gb+me", Slices: 2, MaxInstances: 1, Placements: []gpu.Placement{{Start: 0, Size: 2}, {Start: 2, Size: 2}},
		Capacity: gpu.Capacity{MemoryBytes: 11672 << 20, Multiprocessors: 28, CopyEngines: 2, Decoders: 2, JPEGEngines: 1, OFAEngines: 1},
	}, seen.Profiles[4])
	assert.Empty(t, seen.Instances)

	m = inMIGMode(t, "h100-80")
	gi := m.create(19, gpu.Placement{Start: 6, Size: 1})
	seen = m.seen().MIG
	assert.Equal(t, gpu.MIGMode{Enabled: true, Pending: true}, seen.Mode)
	assert.Equal(t, []gpu.Instance{{ID: gi, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}}}, seen.Instances)

	assert.Nil(t, newMachine(t, model.Uniform("node-a", "l40s", 1)).seen().MIG)
}

// A mode that does not take effect at once is reverted.
func TestSetMIGMode_NotInForce_Reverted(t *testing.T) {
	ampere := newMachine(t, model.Uniform("node-a", "a100-80", 1))
	var unsupported *gpu.UnsupportedError
	require.ErrorAs(t, ampere.SetMIGMode(t.Context(), ampere.id, true), &unsupported)
	mode, err := ampere.MIGMode(t.Context(), ampere.id)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{NeedsReset: true}, mode)

	on := newMachine(t, model.Spec{Name: "node-a", Boards: []string{"a100-80"}, MIG: []int{0}})
	require.NoError(t, on.SetMIGMode(t.Context(), on.id, true), "in force already")
	require.ErrorAs(t, on.SetMIGMode(t.Context(), on.id, false), &unsupported)
	mode, err = on.MIGMode(t.Context(), on.id)
	require.NoError(t, err)
	assert.Equal(t, gpu.MIGMode{Enabled: true, Pending: true, NeedsReset: true}, mode)

	held := newMachine(t, model.Uniform("node-a", "h100-80", 1))
	release, err := held.node.Hold(string(held.id))
	require.NoError(t, err)
	require.ErrorIs(t, held.SetMIGMode(t.Context(), held.id, true), gpu.ErrInUse)
	mode, err = held.MIGMode(t.Context(), held.id)
	require.NoError(t, err)
	assert.Zero(t, mode)
	release()
	require.NoError(t, held.SetMIGMode(t.Context(), held.id, true))
}

// A fault applies to the function and the GPU that it names.
func TestSession_FaultOnMIGCall_Returned(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	gi := m.create(19, gpu.Placement{Size: 1})
	ci, err := m.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	for symbol, call := range map[string]func() error{
		"nvmlDeviceGetMigMode":      func() error { _, err := m.MIGMode(t.Context(), m.id); return err },
		"nvmlDeviceSetMigMode":      func() error { return m.SetMIGMode(t.Context(), m.id, true) },
		"nvmlDeviceGetGpuInstances": func() error { _, err := m.Instances(t.Context(), m.id); return err },
		"nvmlDeviceCreateGpuInstanceWithPlacement": func() error {
			_, err := m.CreateInstance(t.Context(), m.id, 19, gpu.Placement{Start: 1, Size: 1})
			return err
		},
		"nvmlGpuInstanceCreateComputeInstance": func() error { _, err := m.CreateComputeInstance(t.Context(), m.id, gi); return err },
		"nvmlComputeInstanceDestroy":           func() error { return m.DestroyComputeInstance(t.Context(), m.id, gi, ci.ID) },
		"nvmlGpuInstanceDestroy":               func() error { return m.DestroyInstance(t.Context(), m.id, gi) },
	} {
		fault, err := m.node.Faults.Add(model.Fault{Effect: model.EffectError, GPU: 0, Call: symbol, Return: model.GPUIsLost})
		require.NoError(t, err)
		require.ErrorIs(t, call(), gpu.ErrLost, symbol)
		m.node.Faults.Remove(fault)
	}
	full := gpu.Instance{ID: gi, Profile: 19, Placement: gpu.Placement{Size: 1}, Compute: []gpu.ComputeInstance{ci}}
	assert.Equal(t, []gpu.Instance{full}, m.instances(), "nothing has changed")
}

func TestInstance_ByID_Described(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	read := func(gi int, uuid gpu.MIGUUID) *gpu.Instance {
		i, err := m.Instance(t.Context(), m.id, gi, uuid)
		require.NoError(t, err)
		return i
	}
	gi := m.create(19, gpu.Placement{Start: 6, Size: 1})
	ci, err := m.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	empty := gpu.Instance{ID: gi, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}}
	filled := empty
	filled.Compute = []gpu.ComputeInstance{ci}
	assert.Equal(t, &filled, read(gi, ci.UUID))
	assert.Equal(t, &empty, read(gi, "MIG-another"))
	assert.Equal(t, &empty, read(gi, ""))
	assert.Nil(t, read(gi+1, ci.UUID))
	occupied, err := m.Occupied(t.Context(), m.id)
	require.NoError(t, err)
	assert.Equal(t, []gpu.Instance{empty}, occupied)
	require.NoError(t, m.DestroyComputeInstance(t.Context(), m.id, gi, ci.ID))
	assert.Equal(t, &empty, read(gi, ci.UUID))
	require.NoError(t, m.DestroyInstance(t.Context(), m.id, gi))
	require.NoError(t, m.SetMIGMode(t.Context(), m.id, false))
	assert.Nil(t, read(gi, ci.UUID))
	occupied, err = m.Occupied(t.Context(), m.id)
	require.NoError(t, err)
	assert.Empty(t, occupied)
}

func TestSession_MIGCalls_Counted(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	counts := func() map[string]uint64 { return m.node.Calls.Of(os.Getpid()).Counts }
	old := counts()
	gi := m.create(5, gpu.Placement{Size: 4})
	_, err := m.CreateComputeInstance(t.Context(), m.id, gi)
	require.NoError(t, err)
	require.NoError(t, m.DestroyComputeInstance(t.Context(), m.id, gi, 0))
	require.NoError(t, m.DestroyInstance(t.Context(), m.id, gi))
	got := counts()
	for name, n := range old {
		got[name] -= n
		if got[name] == 0 {
			delete(got, name)
		}
	}
	want := map[string]uint64{
		"nvmlDeviceCreateGpuInstanceWithPlacement": 1, "nvmlGpuInstanceGetInfo": 2, "nvmlDeviceGetGpuInstanceById": 3,
		"nvmlGpuInstanceGetComputeInstanceProfileInfo": 1, "nvmlGpuInstanceCreateComputeInstance": 1, "nvmlComputeInstanceGetInfo_v2": 1,
		"nvmlDeviceGetMaxMigDeviceCount": 1, "nvmlDeviceGetMigDeviceHandleByIndex": 1, "nvmlDeviceGetGpuInstanceId": 1,
		"nvmlDeviceGetComputeInstanceId": 1, "nvmlDeviceGetUUID": 1,
		"nvmlGpuInstanceGetComputeInstanceById": 1, "nvmlComputeInstanceDestroy": 1, "nvmlGpuInstanceDestroy": 1,
	}
	assert.Empty(t, cmp.Diff(want, got))
}
