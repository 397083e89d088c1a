package publish_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// migBoards are the simulated boards that can be partitioned.
func migBoards(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(model.BoardIDs(), func(id string) bool {
		board, err := model.BoardByID(id)
		require.NoError(t, err)
		return !board.MIG.Capable()
	})
}

// migNode is a node whose GPUs can be partitioned: GPUs of the Ampere generation are in MIG mode already.
func migNode(t *testing.T, board string, count int) *gpu.Node {
	t.Helper()
	n := node(t, board, count)
	for i := range n.GPUs {
		n.GPUs[i].MIG = migOf(t, board)
	}
	return n
}

// migOf returns a board's profiles as its driver reports them, in the driver's order.
func migOf(t *testing.T, id string) *gpu.MIG {
	t.Helper()
	board, err := model.BoardByID(id)
	require.NoError(t, err)
	require.True(t, board.MIG.Capable(), id)
	on := board.MIG.NeedsReset
	m := &gpu.MIG{Mode: gpu.MIGMode{NeedsReset: on, Enabled: on, Pending: on}}
	profiles := slices.Clone(board.MIG.Profiles)
	slices.SortFunc(profiles, func(a, b model.MIGProfile) int { return int(a.Index) - int(b.Index) })
	for _, profile := range profiles {
		p := gpu.MIGProfile{ID: int(profile.ID), Name: profile.Name, Slices: profile.Slices, MaxInstances: profile.Instances, Capacity: gpu.Capacity{
			MemoryBytes: profile.MemoryMiB << 20, Multiprocessors: uint32(profile.Multiprocessors), CopyEngines: uint32(profile.Engines.Copy),
			Decoders: uint32(profile.Engines.Decoder), JPEGEngines: uint32(profile.Engines.JPEG), OFAEngines: uint32(profile.Engines.OFA),
		}}
		for _, at := range profile.Placements() {
			p.Placements = append(p.Placements, gpu.Placement{Start: int(at.Start), Size: int(at.Size)})
		}
		m.Profiles = append(m.Profiles, p)
	}
	return m
}

// instance is one of a profile at a start.
type instance struct{ profile, start int }

// hardware finds the sets of instances that a GPU can hold at once, from the simulated GPU and not from the ResourceSlices: an instance is
// possible beside others if the driver makes it.
type hardware struct {
	t       *testing.T
	driver  *model.Session
	gpu     model.Handle
	numbers map[instance]int
	// known holds the answers, by the set of the instances' numbers.
	known map[uint64]bool
}

func newHardware(t *testing.T, board string) *hardware {
	t.Helper()
	machine, err := model.New(model.Uniform(nodeName, board, 1))
	require.NoError(t, err)
	version, _ := machine.Driver()
	driver, err := machine.Open(version, []int{0})
	require.NoError(t, err)
	handle, err := driver.ByIndex(0)
	require.NoError(t, err)
	_, err = driver.SetMIGMode(t.Context(), handle, true, true)
	require.NoError(t, err)
	require.NoError(t, machine.ResetGPU(0))
	return &hardware{t: t, driver: driver, gpu: handle, numbers: map[instance]int{}, known: map[uint64]bool{}}
}

// holds reports whether these devices can be in use at once. The GPU itself, for one or for several, is used in another MIG mode.
func (h *hardware) holds(devices []gpu.Device) bool {
	h.t.Helper()
	var wanted []gpu.MIGDevice
	set := uint64(0)
	for _, d := range devices {
		device, isMIG := d.(gpu.MIGDevice)
		if !isMIG {
			return len(devices) == 1
		}
		bit := uint64(1) << h.number(device)
		if set&bit != 0 {
			return false // the same one twice
		}
		wanted, set = append(wanted, device), set|bit
	}
	can, known := h.known[set]
	if !known {
		can = h.makes(wanted)
		h.known[set] = can
	}
	return can
}

func (h *hardware) number(d gpu.MIGDevice) int {
	key := instance{d.Profile.ID, d.Placement.Start}
	if _, known := h.numbers[key]; !known {
		h.numbers[key] = len(h.numbers)
	}
	return h.numbers[key]
}

// makes tries to make the instances, and leaves the GPU empty.
func (h *hardware) makes(wanted []gpu.MIGDevice) bool {
	h.t.Helper()
	var made []model.Handle
	defer func() {
		for _, handle := range made {
			require.NoError(h.t, h.driver.DestroyGPUInstance(h.t.Context(), handle, true))
		}
	}()
	for _, d := range wanted {
		at := model.Placement{Start: uint32(d.Placement.Start), Size: uint32(d.Placement.Size)}
		handle, err := h.driver.CreateGPUInstance(h.t.Context(), h.gpu, uint32(d.Profile.ID), &at, true)
		if errors.Is(err, model.InsufficientResources) {
			return false
		}
		require.NoError(h.t, err)
		made = append(made, handle)
	}
	return true
}

// namesOf lists the names of devices.
func namesOf(devices []gpu.Device) []gpu.DeviceName {
	var out []gpu.DeviceName
	for _, d := range devices {
		out = append(out, d.Name())
	}
	return out
}
