package inventory

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// instance returns a GPU instance with a compute instance of that UUID.
func instance(id int, uuid gpu.MIGUUID) gpu.Instance {
	return gpu.Instance{ID: id, Profile: 19, Placement: gpu.Placement{Start: id, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: uuid}}}
}

// partition puts these instances on the first GPU.
func partition(instances ...gpu.Instance) func(*machine) {
	return func(m *machine) {
		gpus := append([]gpu.GPU{}, m.gpus...)
		gpus[0].MIG = &gpu.MIG{Mode: gpu.MIGMode{Enabled: true}, Instances: instances}
		m.gpus = gpus
	}
}

// owners says which instances claims own. The first call comes between the two inspections, the second one after them.
type owners struct {
	uuids []gpu.MIGUUID
	err   error
	asked int
	then  func()
}

func (o *owners) owned() (Owned, error) {
	o.asked++
	uuids, err := slices.Clone(o.uuids), o.err
	if o.then != nil {
		defer o.then()
	}
	return func(id gpu.UUID, i *gpu.Instance) bool {
		for _, uuid := range uuids {
			if id == "GPU-11111111-aaaa" && len(i.Compute) > 0 && i.Compute[0].UUID == uuid {
				return true
			}
		}
		return false
	}, err
}

// shown returns the instances of the first GPU in the view after one more inspection.
func shown(t *testing.T, i *Inventory) []gpu.Instance {
	t.Helper()
	require.NoError(t, i.Refresh(t.Context()))
	require.Nil(t, i.Current().Node.GPUs[1].MIG)
	return i.Current().Node.GPUs[0].MIG.Instances
}

func TestView_InstancesOfClaims_LeftOut(t *testing.T) {
	t.Parallel()
	m, o := newMachine(), &owners{uuids: []gpu.MIGUUID{"MIG-ours", "MIG-next"}}
	i := New(Options{Host: m, Open: m.open, Owned: o.owned})
	m.change(partition())
	require.Nil(t, shown(t, i))
	empty := i.Current()
	assert.Zero(t, o.asked, "which claims own them is not asked where there are none")
	m.change(partition(instance(1, "MIG-ours"), instance(2, "MIG-next")))
	require.Nil(t, shown(t, i))
	assert.Same(t, empty, i.Current(), "claims that come and go are no news")

	half := gpu.Instance{ID: 5, Profile: 9, Placement: gpu.Placement{Start: 4, Size: 4}}
	m.change(partition(instance(1, "MIG-ours"), instance(3, "MIG-theirs"), half))
	assert.Equal(t, []gpu.Instance{instance(3, "MIG-theirs"), half}, shown(t, i))
	m.mu.Lock()
	assert.Len(t, m.gpus[0].MIG.Instances, 3, "what the driver returned is not written to")
	m.mu.Unlock()
}

// TestView_SeenInTwoInspections_Static: two inspections show an instance, and records that were read between or after them do not name it.
func TestView_SeenInTwoInspections_Static(t *testing.T) {
	t.Parallel()
	stays := instance(1, "MIG-stays")
	for name, c := range map[string]struct{ first, second []gpu.Instance }{
		"its claim ended": {[]gpu.Instance{stays, instance(2, "MIG-gone")}, []gpu.Instance{stays}},
		"a claim came":    {[]gpu.Instance{stays}, []gpu.Instance{stays, instance(2, "MIG-new")}},
		"one claim came after another": {
			[]gpu.Instance{stays, instance(2, "MIG-gone")}, []gpu.Instance{stays, instance(2, "MIG-new")},
		},
		"a claim makes it": {
			[]gpu.Instance{stays, {ID: 2, Profile: 19, Placement: gpu.Placement{Start: 2, Size: 1}}},
			[]gpu.Instance{stays, instance(2, "MIG-new")},
		},
		"its place is taken by another": {[]gpu.Instance{stays, {ID: 2, Profile: 19}}, []gpu.Instance{stays, {ID: 2, Profile: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, o := newMachine(), &owners{}
			m.change(partition(c.first...))
			o.then = func() { m.change(partition(c.second...)) }
			i := New(Options{Host: m, Open: m.open, Owned: o.owned})
			assert.Equal(t, []gpu.Instance{stays}, shown(t, i))
			assert.Equal(t, 2, o.asked)
			assert.Equal(t, c.second, shown(t, i), "the next inspection decides")
		})
	}
}

// TestInstances_RecreatedBetweenInspections_BelongToClaims: the instance of one claim is removed, and the next claim's instance gets its
// placement with the same ID and UUID. Between the inspections no record names the instance: the first claim's record is gone, and the
// second one's does not exist yet.
func TestInstances_RecreatedBetweenInspections_BelongToClaims(t *testing.T) {
	t.Parallel()
	stays := instance(1, "MIG-stays")
	m, o := newMachine(), &owners{}
	m.change(partition(stays, instance(2, "MIG-same")))
	o.then = func() { o.uuids = []gpu.MIGUUID{"MIG-same"} }
	i := New(Options{Host: m, Open: m.open, Owned: o.owned})
	assert.Equal(t, []gpu.Instance{stays}, shown(t, i))
	assert.Equal(t, 2, o.asked)

	o.then = func() { o.uuids, o.err = nil, errors.New("input/output error") }
	o.uuids = nil
	assert.Equal(t, []gpu.Instance{stays}, shown(t, i), "what cannot be read the second time makes nothing an administrator's")
}

// TestRecords_AllInstancesOwned_ReadOnce: if claims own all instances, an inspection reads the records once.
func TestRecords_AllInstancesOwned_ReadOnce(t *testing.T) {
	t.Parallel()
	m, o := newMachine(), &owners{uuids: []gpu.MIGUUID{"MIG-ours"}}
	m.change(partition(instance(1, "MIG-ours")))
	require.Nil(t, shown(t, New(Options{Host: m, Open: m.open, Owned: o.owned})))
	assert.Equal(t, 1, o.asked)
}

// TestView_RecordsUnreadable_Unchanged: a static MIG device stays static, and no other becomes static.
func TestView_RecordsUnreadable_Unchanged(t *testing.T) {
	t.Parallel()
	m, o := newMachine(), &owners{}
	i := New(Options{Host: m, Open: m.open, Owned: o.owned})
	m.change(partition(instance(1, "MIG-theirs")))
	known := shown(t, i)
	require.Len(t, known, 1)
	o.err = errors.New("input/output error")
	m.change(partition(instance(1, "MIG-theirs"), instance(2, "MIG-ours")))
	assert.Equal(t, known, shown(t, i))
	o.err, o.uuids = nil, []gpu.MIGUUID{"MIG-ours"}
	assert.Equal(t, known, shown(t, i))

	o.err = errors.New("input/output error")
	fresh := New(Options{Host: m, Open: m.open, Owned: o.owned})
	assert.Empty(t, shown(t, fresh))
}

func TestView_NoClaims_AllInstancesStatic(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.change(partition(instance(1, "MIG-theirs")))
	assert.Equal(t, []gpu.Instance{instance(1, "MIG-theirs")}, shown(t, New(Options{Host: m, Open: m.open})))
}

func TestMIGDriver_OpenDriver_IsReturned(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	_, err := i.MIGDriver()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.EqualError(t, err, "partitioning a GPU: NVIDIA driver is not loaded")
	require.NoError(t, i.Refresh(t.Context()))
	driver, err := i.MIGDriver()
	require.NoError(t, err)
	assert.NotNil(t, driver)
	m.change(func(m *machine) { m.loaded = "" })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	_, err = i.MIGDriver()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
}

// TestMIGDriver_DriverLeaves_CallsRefused: a claim that is being prepared holds the driver while the driver is unloaded. Its next call is
// refused.
func TestMIGDriver_DriverLeaves_CallsRefused(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	driver, err := i.MIGDriver()
	require.NoError(t, err)
	m.change(func(m *machine) { m.loaded = "" })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	require.ErrorIs(t, driver.SetMIGMode(t.Context(), "GPU-11111111-aaaa", true), gpu.ErrDriverNotLoaded)
}
