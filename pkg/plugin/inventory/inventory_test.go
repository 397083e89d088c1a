package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

func newInventory(m *machine) *Inventory {
	return New(Options{Host: m, Open: m.open, Clock: Clock{Now: func() time.Time { return time.Unix(1000, 0) }}})
}

func TestRefresh_Node_Shown(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	before := i.Current()
	require.ErrorIs(t, before.Err, errNotInspected)
	assert.False(t, i.Status().Usable())

	require.NoError(t, i.Refresh(t.Context()))
	v := i.Current()
	want := []gpu.GPU{
		{UUID: "GPU-11111111-aaaa", ID: "11111111", PCI: gpu.PCI{BusID: "0000:3b:00.0", Root: "pci0000:3b", NUMANode: 1}},
		{UUID: "GPU-22222222-bbbb", ID: "22222222", Index: 1, Minor: 1, PCI: gpu.PCI{BusID: "0000:5b:00.0", Root: "pci0000:5b", NUMANode: 1}},
	}
	assert.Empty(t, cmp.Diff(want, v.Node.GPUs))
	assert.Equal(t, gpu.Driver{Version: "580.95.05", CUDAVersion: "13.0"}, v.Node.Driver)
	assert.Equal(t, []string{"LIBRARY=580.95.05"}, v.Common.Env)
	assert.Equal(t, "/run/nvidia/driver", v.Root.HostPath)
	assert.Equal(t, time.Unix(1000, 0), v.At)
	assert.Equal(t, Status{Since: time.Unix(1000, 0), Checked: time.Unix(1000, 0), GPUs: 2}, i.Status())
	requireReplaced(t, before)
}

func TestRefresh_NoChange_Silent(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.faults[1] = errors.New("odd")
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	v := i.Current()
	m.change(func(m *machine) { m.faults[1] = errors.New("odd") })
	require.NoError(t, i.Refresh(t.Context()))
	assert.Same(t, v, i.Current(), "a fault that says the same is no change")
	requireCurrent(t, v)
	assert.Equal(t, 1, m.opened, "one session for all inspections")
}

func TestGPUs_OneFails_OthersShown(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	good := i.Current()

	m.change(func(m *machine) { m.faults[0] = gpu.ErrLost })
	require.NoError(t, i.Refresh(t.Context()), "the driver is usable")
	requireReplaced(t, good)
	bad := i.Current()
	assert.Equal(t, []gpu.UUID{"GPU-11111111-aaaa", "GPU-22222222-bbbb"}, uuids(bad), "it stays with its last facts")
	assert.True(t, bad.Node.GPUs[0].Lost)
	assert.False(t, bad.Node.GPUs[1].Lost)
	require.Len(t, bad.Node.Faults, 1)
	assert.Equal(t, gpu.UUID("GPU-11111111-aaaa"), bad.Node.Faults[0].UUID)
	require.ErrorIs(t, bad.Node.Faults[0].Err, gpu.ErrLost)
	assert.Equal(t, 1, i.Status().Faults)
	assert.Equal(t, 1, i.Status().GPUs)
	assert.Len(t, good.Node.GPUs, 2, "a published view stays as it is")

	m.change(func(m *machine) { delete(m.faults, 0) })
	require.NoError(t, i.Refresh(t.Context()))
	requireReplaced(t, bad)
	assert.Equal(t, good.Node.GPUs, i.Current().Node.GPUs)
}

func TestRefresh_AttributeChanged_NewView(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	v := i.Current()
	m.change(func(m *machine) { m.gpus[1].Minor = 7 })
	require.NoError(t, i.Refresh(t.Context()))
	requireReplaced(t, v)
	m.change(func(m *machine) { m.installed[0].DevHostPath = "/run/nvidia/driver" })
	v = i.Current()
	require.NoError(t, i.Refresh(t.Context()))
	requireReplaced(t, v)
	assert.Equal(t, "/run/nvidia/driver", i.Current().Root.DevHostPath)
	assert.Equal(t, 1, m.opened)
}

func TestRefresh_DriverComesAndGoes_Followed(t *testing.T) {
	t.Parallel()
	m := newMachine()
	root := m.installed
	m.installed, m.loaded = nil, ""
	i := newInventory(m)
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	v := i.Current()
	require.ErrorContains(t, v.Err, "no library")
	assert.Empty(t, v.Node.GPUs)
	assert.Nil(t, v.Common)
	assert.Equal(t, 2, i.Status().Failures)

	m.change(func(m *machine) { m.installed = root })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded, "library without kernel module")
	m.change(func(m *machine) { m.loaded = "580.95.05" })
	require.NoError(t, i.Refresh(t.Context()))
	assert.Len(t, i.Current().Node.GPUs, 2)
	assert.Zero(t, i.Status().Failures)

	m.change(func(m *machine) { m.loaded = "" })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	v = i.Current()
	assert.Empty(t, v.Node.GPUs)
	assert.Empty(t, v.Node.Driver)
	assert.Zero(t, v.Root)
	assert.Equal(t, 1, m.closed, "the session of a driver that left is closed")
	require.Error(t, i.Refresh(t.Context()))
	assert.Same(t, v, i.Current(), "still gone is no change")

	m.change(func(m *machine) { m.loaded = "580.95.05" })
	require.NoError(t, i.Refresh(t.Context()), "the same library is opened again in this process")
	assert.Len(t, i.Current().Node.GPUs, 2)
	assert.Equal(t, 2, m.opened)

	m.change(func(m *machine) { m.installed = nil })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded, "files gone while the module is loaded")
	m.change(func(m *machine) { m.installed = root })
	require.NoError(t, i.Refresh(t.Context()))
}

func TestRefresh_LibraryReplaced_ErrDriverReplaced(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*machine){
		"another version": func(m *machine) {
			m.installed = []hostfs.DriverRoot{installation("/run/nvidia/driver", "590.10", 2)}
			m.loaded = "590.10"
		},
		"same name, another file": func(m *machine) { m.installed[0].LibraryID.Inode = 9 },
		"another root that fits the new module": func(m *machine) {
			m.installed = append(m.installed, installation("/", "590.10", 3))
			m.loaded = "590.10"
		},
	}
	for name, replace := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			i := newInventory(m)
			require.NoError(t, i.Refresh(t.Context()))
			m.change(replace)
			require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverReplaced)
			assert.Empty(t, i.Current().Node.GPUs, "nothing can be advertised any more")
			require.ErrorIs(t, i.Current().Err, gpu.ErrDriverReplaced)
			assert.Equal(t, 1, m.closed)
		})
	}
}

func TestRefresh_ReplacedBeforeFirstUse_ErrDriverReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.loaded = ""
	i := newInventory(m)
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverNotLoaded)
	m.change(func(m *machine) {
		m.installed = []hostfs.DriverRoot{installation("/run/nvidia/driver", "590.10", 2)}
		m.loaded = "590.10"
	})
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrDriverReplaced, "the opener's refusal is passed on")
}

func TestRefresh_VersionChangedSameLibrary_ErrDriverReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	i.session.(*fakeSession).version = "590.10"
	m.change(func(m *machine) { m.loaded = "590.10"; m.installed[0].Version = "590.10" })
	err := i.Refresh(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverReplaced)
	require.ErrorContains(t, err, "driver 590.10 replaced 580.95.05")
}

func TestRefresh_ModuleUnloaded_InstallationStays(t *testing.T) {
	t.Parallel()
	m := newMachine()
	// Stale files of an older driver on the host come first in the order.
	m.installed = append([]hostfs.DriverRoot{installation("/", "535.216.01", 7)}, m.installed...)
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	assert.Equal(t, "/run/nvidia/driver", i.Current().Root.HostPath)
	m.change(func(m *machine) { m.loaded = "" })
	err := i.Refresh(t.Context())
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	require.NotErrorIs(t, err, gpu.ErrDriverReplaced)
	m.change(func(m *machine) { m.loaded = "580.95.05" })
	require.NoError(t, i.Refresh(t.Context()))
}

func TestClose_DriverHangs_NotClosed(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	m.change(func(m *machine) { m.hangs = true })
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrTimeout)
	assert.Empty(t, i.Current().Node.GPUs)
	assert.Zero(t, m.closed)
	m.change(func(m *machine) { m.hangs = false })
	require.NoError(t, i.Refresh(t.Context()))
	assert.Equal(t, 1, m.opened, "the session goes on where it hung")
}

func TestRefresh_IncompleteInstallation_Error(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.editsErr = fmt.Errorf("libcuda.so.580.95.05: %w", gpu.ErrNotFound)
	i := newInventory(m)
	require.ErrorIs(t, i.Refresh(t.Context()), gpu.ErrNotFound)
	assert.Empty(t, i.Current().Node.GPUs, "no GPU is advertised that no program could use")
	m.change(func(m *machine) { m.editsErr = nil })
	require.NoError(t, i.Refresh(t.Context()))
}

func TestRefresh_Interrupted_ViewUnchanged(t *testing.T) {
	t.Parallel()
	m := newMachine()
	i := newInventory(m)
	require.NoError(t, i.Refresh(t.Context()))
	v := i.Current()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, i.Refresh(ctx), context.Canceled)
	assert.Same(t, v, i.Current())
}

func TestRun_DriverComesAndGoes_ViewsFollow(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.loaded = ""
	c := newClock()
	i := New(Options{Host: m, Open: m.open, Interval: 3 * time.Second, Clock: c.clock()})
	require.Error(t, i.Refresh(t.Context()))
	done := make(chan error, 1)
	go func() { done <- i.Run(t.Context()) }()

	for _, want := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry, 3 * time.Second, 3 * time.Second} {
		assert.Equal(t, want, c.waiting(t))
		c.tick(t)
	}
	m.change(func(m *machine) { m.loaded = "580.95.05" })
	c.waiting(t)
	c.tick(t)
	assert.Equal(t, 3*time.Second, c.waiting(t))
	assert.Len(t, i.Current().Node.GPUs, 2)

	m.change(func(m *machine) { m.loaded = "" })
	c.tick(t)
	assert.Equal(t, firstRetry, c.waiting(t), "a driver that left is searched for soon")
	assert.Empty(t, i.Current().Node.GPUs)

	m.change(func(m *machine) { m.installed[0].LibraryID.Inode = 2; m.loaded = "580.95.05" })
	c.tick(t)
	select {
	case err := <-done:
		require.ErrorIs(t, err, gpu.ErrDriverReplaced)
	case <-time.After(waitLimit):
		require.Fail(t, "Run goes on with a replaced library")
	}
}

func TestRun_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	m := newMachine()
	c := newClock()
	i := New(Options{Host: m, Open: m.open, Clock: c.clock()})
	require.NoError(t, i.Refresh(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	assert.Equal(t, DefaultInterval, c.waiting(t))
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(waitLimit):
		require.Fail(t, "Run does not end")
	}
	assert.Len(t, i.Current().Node.GPUs, 2, "what was published stays")
	_, err := i.MIGDriver()
	require.NoError(t, err, "calls that still run have the driver")
	assert.Zero(t, m.closed)
	i.Close()
	assert.Equal(t, 1, m.closed)
	_, err = i.MIGDriver()
	require.ErrorIs(t, err, gpu.ErrDriverNotLoaded)
	i.Close()
	assert.Equal(t, 1, m.closed, "once")
}

func requireReplaced(t *testing.T, v *View) {
	t.Helper()
	select {
	case <-v.Replaced():
	default:
		require.Fail(t, "no subscriber was notified of the new view")
	}
}

func requireCurrent(t *testing.T, v *View) {
	t.Helper()
	select {
	case <-v.Replaced():
		require.Fail(t, "notified of a change that is none")
	default:
	}
}
