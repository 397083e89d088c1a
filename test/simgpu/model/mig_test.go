package model

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const asRoot = true

// migGPU is the first GPU of a node, in MIG mode if a test enables it.
type migGPU struct {
	*testing.T
	node *Node
	*Session
	gpu Handle
}

func newMIGGPU(t *testing.T, board string) *migGPU {
	t.Helper()
	node := newNode(t, board, 1)
	session := open(t, node)
	gpu, err := session.ByIndex(0)
	require.NoError(t, err)
	return &migGPU{T: t, node: node, Session: session, gpu: gpu}
}

func inMIGMode(t *testing.T, board string) *migGPU {
	t.Helper()
	m := newMIGGPU(t, board)
	_, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	require.NoError(t, m.node.ResetGPU(0))
	return m
}

func (m *migGPU) profile(name string) MIGProfile {
	m.Helper()
	list, err := m.MIGProfiles(m.gpu)
	require.NoError(m, err)
	i := slices.IndexFunc(list, func(p MIGProfile) bool { return p.Name == name })
	require.GreaterOrEqual(m, i, 0, name)
	return list[i]
}

func (m *migGPU) create(name string, start int) (Handle, error) {
	m.Helper()
	p := m.profile(name)
	if start < 0 {
		return m.CreateGPUInstance(m.Context(), m.gpu, p.ID, nil, asRoot)
	}
	return m.CreateGPUInstance(m.Context(), m.gpu, p.ID, &Placement{uint32(start), p.Size}, asRoot)
}

func (m *migGPU) must(name string, start int) Handle {
	m.Helper()
	h, err := m.create(name, start)
	require.NoError(m, err, name)
	return h
}

// device creates a compute instance that fills the GPU instance.
func (m *migGPU) device(gi Handle) (Handle, string) {
	m.Helper()
	instance, err := m.GPUInstance(gi)
	require.NoError(m, err)
	profiles := instance.Profile.ComputeProfiles()
	ci, err := m.CreateComputeInstance(m.Context(), gi, profiles[len(profiles)-1].ID, asRoot)
	require.NoError(m, err)
	made, err := m.ComputeInstance(ci)
	require.NoError(m, err)
	devices := m.node.Snapshot().GPUs[0].MIGDevices
	i := slices.IndexFunc(devices, func(d MIGDeviceSnapshot) bool {
		return d.GPUInstance == instance.ID && d.ComputeInstance != nil && *d.ComputeInstance == made.ID
	})
	require.GreaterOrEqual(m, i, 0)
	return ci, devices[i].UUID
}

func (m *migGPU) modes() [2]bool {
	m.Helper()
	current, pending, err := m.MIGMode(m.gpu)
	require.NoError(m, err)
	return [2]bool{current, pending}
}

func TestSetMIGMode_Hopper_ChangesAtOnce(t *testing.T) {
	m := newMIGGPU(t, "h100-80")
	activation, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	require.NoError(t, activation)
	assert.Equal(t, [2]bool{true, true}, m.modes())
	m.must("1g.10gb", 0)
	_, err = m.SetMIGMode(t.Context(), m.gpu, false, asRoot)
	assert.Equal(t, InUse, err, "an instance exists")
	assert.Equal(t, [2]bool{true, true}, m.modes())

	m.node.Unload()
	require.NoError(t, m.node.Load(DefaultDriver))
	assert.Equal(t, []bool{false, false}, []bool{m.node.Snapshot().GPUs[0].MIG, m.node.Snapshot().GPUs[0].MIGPending})
	assert.Empty(t, m.node.Snapshot().GPUs[0].MIGDevices)
	assert.Empty(t, m.node.Spec().MIG, "a boot finds the mode off")
}

func TestSetMIGMode_Ampere_PendingUntilReset(t *testing.T) {
	m := newMIGGPU(t, "a100-80")
	activation, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	assert.Equal(t, ResetRequired, activation)
	assert.Equal(t, [2]bool{false, true}, m.modes())
	_, err = m.create("1g.10gb", 0)
	assert.Equal(t, NotSupported, err)

	release, err := m.node.Hold(m.node.Identities()[0].UUID)
	require.NoError(t, err)
	require.Equal(t, InUse, m.node.ResetGPU(0))
	release()
	require.NoError(t, m.node.ResetGPU(0))
	assert.Equal(t, [2]bool{true, true}, m.modes())
	m.must("1g.10gb", 0)

	require.Equal(t, []int{0}, m.node.Spec().MIG)
	booted, err := New(m.node.Spec())
	require.NoError(t, err)
	assert.True(t, booted.Snapshot().GPUs[0].MIG, "the mode outlives a boot")
	assert.Empty(t, booted.Snapshot().GPUs[0].MIGDevices, "instances do not")
}

func TestSetMIGMode_DeviceInUse_Pending(t *testing.T) {
	m := newMIGGPU(t, "h100-80")
	release, err := m.node.Hold(m.node.Identities()[0].UUID)
	require.NoError(t, err)
	for range 2 {
		activation, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
		require.NoError(t, err)
		assert.Equal(t, InUse, activation)
		assert.Equal(t, [2]bool{false, true}, m.modes())
	}
	release()
	release()
	assert.Zero(t, m.node.Snapshot().GPUs[0].Clients)
	activation, err := m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	require.NoError(t, activation)
	assert.Equal(t, [2]bool{true, true}, m.modes())
	_, err = m.node.Hold("GPU-nothing")
	assert.Equal(t, NotFound, err)
}

func TestLoad_MIGMode_KeptOnAmpereOnly(t *testing.T) {
	for board, kept := range map[string]bool{"a30": true, "a100-40": true, "h100-80": false, "t4": false} {
		_, err := New(Spec{Name: "n", Boards: []string{board}, MIG: []int{0}})
		assert.Equal(t, kept, err == nil, "%s: %v", board, err)
	}
	_, err := New(Spec{Name: "n", Boards: []string{"a30"}, MIG: []int{1}})
	assert.Error(t, err)
}

func TestMIG_WithoutRootOrMode_Refused(t *testing.T) {
	m := newMIGGPU(t, "h100-80")
	_, err := m.SetMIGMode(t.Context(), m.gpu, true, false)
	assert.Equal(t, NoPermission, err)
	_, err = m.create("1g.10gb", 0)
	assert.Equal(t, NotSupported, err)
	_, err = m.RemainingCapacity(m.gpu, 19)
	assert.Equal(t, NotSupported, err)
	_, err = m.SetMIGMode(t.Context(), m.gpu, true, asRoot)
	require.NoError(t, err)
	_, err = m.CreateGPUInstance(t.Context(), m.gpu, 19, nil, false)
	assert.Equal(t, NoPermission, err)
	gi := m.must("1g.10gb", 0)
	_, err = m.CreateComputeInstance(t.Context(), gi, 0, false)
	assert.Equal(t, NoPermission, err)
	assert.Equal(t, NoPermission, m.DestroyGPUInstance(t.Context(), gi, false))
	for _, at := range []Placement{{7, 1}, {0, 2}} {
		_, err = m.CreateGPUInstance(t.Context(), m.gpu, 19, &at, asRoot)
		assert.Equal(t, InvalidArgument, err, at)
	}
	_, err = m.CreateGPUInstance(t.Context(), m.gpu, 99, nil, asRoot)
	assert.Equal(t, InvalidArgument, err)
	_, err = m.CreateGPUInstance(t.Context(), gi, 19, nil, asRoot)
	assert.Equal(t, InvalidArgument, err, "an instance is not a GPU")

	bare := newMIGGPU(t, "l40s")
	_, err = bare.SetMIGMode(t.Context(), bare.gpu, true, asRoot)
	assert.Equal(t, NotSupported, err)
	_, err = bare.MIGProfiles(bare.gpu)
	assert.Equal(t, NotSupported, err)
}

func TestCreateGPUInstance_Overlap_Refused(t *testing.T) {
	m := inMIGMode(t, "a100-40")
	m.must("3g.20gb", 4)
	for name, start := range map[string]int{"1g.5gb": 4, "2g.10gb": 4, "1g.10gb": 6, "3g.20gb": 4, "7g.40gb": 0} {
		_, err := m.create(name, start)
		assert.Equal(t, InsufficientResources, err, name)
	}
	m.must("1g.5gb+me", 0)
	_, err := m.create("1g.5gb+me", 1)
	assert.Equal(t, InsufficientResources, err, "the media engines exist once")
	left := map[string]int{}
	for _, p := range m.node.Boards()[0].MIG.Profiles {
		left[p.Name], err = m.RemainingCapacity(m.gpu, p.ID)
		require.NoError(t, err)
	}
	want := map[string]int{"1g.5gb": 3, "1g.5gb+me": 0, "1g.10gb": 1, "2g.10gb": 1, "3g.20gb": 0, "4g.20gb": 0, "7g.40gb": 0}
	assert.Equal(t, want, left)
	m.must("1g.5gb", -1)
	m.must("2g.10gb", -1)
	_, err = m.create("1g.5gb", -1)
	assert.Equal(t, InsufficientResources, err)
}

// IDs and UUIDs depend on the placement only. Handles are never reused.
func TestIDsAndUUIDs_CreatedAgain_Same(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	uuids := map[string]bool{}
	var old Handle
	for _, name := range []string{"1g.10gb", "1g.10gb", "1g.10gb+me"} {
		gi := m.must(name, 3)
		instance, err := m.GPUInstance(gi)
		require.NoError(t, err)
		assert.Equal(t, uint32(10), instance.ID)
		assert.NotEqual(t, old, gi)
		_, err = m.GPUInstance(old)
		assert.Equal(t, InvalidArgument, err)
		ci, uuid := m.device(gi)
		uuids[uuid] = true
		require.Equal(t, InUse, m.DestroyGPUInstance(t.Context(), gi, asRoot))
		require.NoError(t, m.DestroyComputeInstance(t.Context(), ci, asRoot))
		_, err = m.ByUUID(uuid)
		assert.Equal(t, NotFound, err)
		require.NoError(t, m.DestroyGPUInstance(t.Context(), gi, asRoot))
		old = gi
	}
	assert.Len(t, uuids, 1, "a profile is not in the name either")
	ids := map[string][]uint32{}
	for _, name := range []string{"2g.20gb", "1g.10gb", "1g.10gb", "3g.40gb"} {
		instance, err := m.GPUInstance(m.must(name, -1))
		require.NoError(t, err)
		ids[name] = append(ids[name], instance.ID)
	}
	assert.Equal(t, map[string][]uint32{"3g.40gb": {2}, "2g.20gb": {3}, "1g.10gb": {9, 10}}, ids, "as nvidia-smi mig -lgi prints them")
}

// UUIDs differ between GPUs, GPU instances, and compute instances in one of them.
func TestUUIDs_DifferentPlacements_Differ(t *testing.T) {
	uuids := map[string]int{}
	for range 2 {
		m := inMIGMode(t, "h100-80")
		for _, whole := range []string{"3g.40gb", "1g.20gb"} {
			_, uuid := m.device(m.must(whole, 0))
			uuids[uuid]++
			assert.Regexp(t, `^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, uuid)
			require.NoError(t, m.node.ResetGPU(0))
		}
		parts := m.must("3g.40gb", 4)
		for range 3 {
			_, err := m.CreateComputeInstance(t.Context(), parts, 0, asRoot)
			require.NoError(t, err)
		}
		for _, d := range m.node.Snapshot().GPUs[0].MIGDevices {
			uuids[d.UUID]++
		}
	}
	assert.Len(t, uuids, 5)
	for uuid, times := range uuids {
		assert.Equal(t, 2, times, "%s: the same whenever it is created", uuid)
	}
	first := newIdentity("n", 0, 0, 0, boards[0])
	second := newIdentity("n", 1, 1, 0, boards[0])
	assert.NotEqual(t, migUUID(&gpu{id: first}, 7, 0), migUUID(&gpu{id: second}, 7, 0))
}

func TestMIGDevice_Created_DescribedAndFound(t *testing.T) {
	m := inMIGMode(t, "a30")
	_, err := m.MIGDeviceByIndex(m.gpu, 0)
	require.Equal(t, NotFound, err)
	gi := m.must("2g.12gb", 2)
	_, err = m.MIGDeviceByIndex(m.gpu, 0)
	require.Equal(t, NotFound, err, "a GPU instance alone is not a device")
	_, uuid := m.device(gi)
	h, err := m.MIGDeviceByIndex(m.gpu, 0)
	require.NoError(t, err)
	byUUID, err := m.ByUUID(uuid)
	require.NoError(t, err)
	assert.Equal(t, h, byUUID)
	device, err := m.MIGDevice(h)
	require.NoError(t, err)
	index, err := m.Index(h)
	require.NoError(t, err)
	assert.Zero(t, index, "by which it is found")
	_, err = m.Index(gi)
	assert.Equal(t, InvalidArgument, err, "a GPU instance has none")
	assert.Equal(t, []any{uuid, "NVIDIA A30 MIG 2g.12gb", m.gpu, Placement{2, 2}}, []any{device.UUID, device.Name, device.GPU, device.Instance.Placement})
	_, err = m.MIGDeviceByIndex(m.gpu, 4)
	assert.Equal(t, InvalidArgument, err)
	_, _, err = m.Device(h)
	assert.Equal(t, InvalidArgument, err, "a MIG device is not a GPU")
	require.NoError(t, m.node.ResetGPU(0))
	_, err = m.MIGDevice(h)
	assert.Equal(t, InvalidArgument, err)
}

func TestComputeInstances_OneGPUInstance_ShareIt(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	gi := m.must("3g.40gb", 0)
	instance, err := m.GPUInstance(gi)
	require.NoError(t, err)
	want := []ComputeProfile{
		{ID: 0, Name: "1c.3g.40gb", Slices: 1, Instances: 3, Multiprocessors: 20},
		{ID: 1, Name: "2c.3g.40gb", Slices: 2, Instances: 1, Multiprocessors: 40},
		{ID: 2, Name: "3g.40gb", Slices: 3, Instances: 1, Multiprocessors: 60},
	}
	if diff := cmp.Diff(want, instance.Profile.ComputeProfiles()); diff != "" {
		t.Error(diff)
	}
	first, err := m.CreateComputeInstance(t.Context(), gi, 0, asRoot)
	require.NoError(t, err)
	_, err = m.CreateComputeInstance(t.Context(), gi, 1, asRoot)
	require.NoError(t, err)
	for id, want := range map[uint32]Return{0: InsufficientResources, 2: InsufficientResources, 3: NotSupported} {
		_, err = m.CreateComputeInstance(t.Context(), gi, id, asRoot)
		assert.Equal(t, want, err, id)
	}
	require.NoError(t, m.DestroyComputeInstance(t.Context(), first, asRoot))
	again, err := m.CreateComputeInstance(t.Context(), gi, 0, asRoot)
	require.NoError(t, err)
	made, err := m.ComputeInstance(again)
	require.NoError(t, err)
	assert.Equal(t, []any{uint32(0), Placement{0, 1}}, []any{made.ID, made.Placement})
}

func TestComputeProfiles_Sizes_Listed(t *testing.T) {
	names := map[string][]string{}
	for _, p := range newMIGGPU(t, "a100-40").node.Boards()[0].MIG.Profiles {
		for _, c := range p.ComputeProfiles() {
			names[p.Name] = append(names[p.Name], c.Name)
			assert.Len(t, p.ComputePlacements(c), p.Slices-c.Slices+1)
		}
	}
	assert.Equal(t, []string{"1c.4g.20gb", "2c.4g.20gb", "4g.20gb"}, names["4g.20gb"], "no 3c")
	assert.Equal(t, []string{"1c.7g.40gb", "2c.7g.40gb", "3c.7g.40gb", "4c.7g.40gb", "7g.40gb"}, names["7g.40gb"])
	assert.Equal(t, []string{"1g.5gb+me"}, names["1g.5gb+me"])
}

// The number of compute slices does not determine which profile fills the instance.
func TestComputeProfiles_DoubleMemory_OneFillsInstance(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	instance, err := m.GPUInstance(m.must("1g.20gb", 0))
	require.NoError(t, err)
	assert.Equal(t, []ComputeProfile{
		{ID: 0, Name: "1c.1g.20gb", Slices: 1, Instances: 1, Multiprocessors: 16},
		{ID: 7, Name: "1g.20gb", Slices: 1, Instances: 1, Multiprocessors: 26},
	}, instance.Profile.ComputeProfiles())
}

func TestDestroy_DeviceInUse_Refused(t *testing.T) {
	m := inMIGMode(t, "h100-80")
	gi := m.must("1g.10gb", 0)
	ci, uuid := m.device(gi)
	release, err := m.node.Hold(uuid)
	require.NoError(t, err)
	assert.Equal(t, InUse, m.DestroyComputeInstance(t.Context(), ci, asRoot))
	assert.Equal(t, InUse, m.node.ResetGPU(0))
	release()
	assert.NoError(t, m.DestroyComputeInstance(t.Context(), ci, asRoot))
}
