package gpu_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// inMIGMode returns the GPUs in MIG mode. The tests do not change the mode.
func inMIGMode(t *testing.T, session *nvml.Session) []gpu.GPU {
	t.Helper()
	all, _, err := session.GPUs(t.Context())
	require.NoError(t, err)
	var found []gpu.GPU
	for i := range all {
		switch g := &all[i]; {
		case g.MIG == nil:
			t.Logf("GPU %d (%s) does not support MIG", g.Index, g.Product.Name)
		case !g.MIG.Mode.Enabled:
			t.Logf("GPU %d (%s): MIG mode is off", g.Index, g.Product.Name)
		default:
			found = append(found, *g)
		}
	}
	if len(found) == 0 {
		t.Skip("no GPU of this machine is in MIG mode")
	}
	return found
}

// The driver reports the same profiles as the tables of the simulation.
func TestProfiles_RealGPUs_MatchSimulation(t *testing.T) {
	session, _, _ := open(t)
	driver, err := session.Driver(t.Context())
	require.NoError(t, err)
	for _, g := range inMIGMode(t, session) {
		show(t, "profiles of "+g.Product.Name, g.MIG.Profiles)
		id, board, known := boardOf(g.Product.Name)
		if !known {
			t.Logf("GPU %d: the simulation lacks board %s", g.Index, g.Product.Name)
			continue
		}
		assert.Empty(t, cmp.Diff(simulated(board, driver), shapes(g.MIG.Profiles)), "GPU %d, the simulated %s", g.Index, id)
		for _, want := range board.MIG.Profiles {
			if i := find(g.MIG.Profiles, want.Name); i >= 0 {
				// The memory that the driver reserves depends on its version.
				assert.InEpsilon(t, want.MemoryMiB<<20, g.MIG.Profiles[i].Capacity.MemoryBytes, .05, want.Name)
			}
		}
		assert.Equal(t, board.MIG.NeedsReset, g.MIG.Mode.NeedsReset, "GPU %d", g.Index)
	}
}

// All calls report the same instances, which match the profiles, do not overlap and have device nodes.
func TestInstances_RealGPUs_ConsistentWithProfiles(t *testing.T) {
	session, _, host := open(t)
	for _, g := range inMIGMode(t, session) {
		show(t, "instances of "+string(g.UUID), g.MIG.Instances)
		mode, err := session.MIGMode(t.Context(), g.UUID)
		require.NoError(t, err)
		assert.Equal(t, g.MIG.Mode, mode)
		again, err := session.Instances(t.Context(), g.UUID)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(g.MIG.Instances, again), "GPU %d", g.Index)

		uuids := map[gpu.MIGUUID]bool{}
		for i := range again {
			instance := &again[i]
			profile, known := g.MIG.Profile(instance.Profile)
			require.True(t, known, "GPU instance %d is of a profile %d that the GPU does not report", instance.ID, instance.Profile)
			assert.Contains(t, profile.Placements, instance.Placement, profile.Name)
			for _, other := range again[:i] {
				assert.False(t, instance.Placement.Overlaps(other.Placement), "GPU instances %d and %d", other.ID, instance.ID)
			}
			for _, c := range instance.Compute {
				assert.Regexp(t, `^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, string(c.UUID), "name-based UUID")
				assert.False(t, uuids[c.UUID], "%s is reported twice", c.UUID)
				uuids[c.UUID] = true
				assert.LessOrEqual(t, c.Slices, profile.Slices)
				nodes, err := host.MIGNodes(g.Minor, instance.ID, c.ID)
				require.NoError(t, err)
				assert.Len(t, nodes, 2)
			}
		}
	}
}

// shape is the part of a profile that does not depend on the driver version.
type shape struct {
	ID, Slices, MaxInstances int
	Engines                  gpu.Capacity
	Placements               []gpu.Placement
}

func shapeOf(p *gpu.MIGProfile) shape {
	engines := p.Capacity
	engines.MemoryBytes, engines.Encoders = 0, 0
	return shape{p.ID, p.Slices, p.MaxInstances, engines, p.Placements}
}

// shapes returns the shapes by name of the profile.
func shapes(profiles []gpu.MIGProfile) map[string]shape {
	named := map[string]shape{}
	for i := range profiles {
		named[profiles[i].Name] = shapeOf(&profiles[i])
	}
	return named
}

func find(profiles []gpu.MIGProfile, name string) int {
	for i := range profiles {
		if profiles[i].Name == name {
			return i
		}
	}
	return -1
}

// boardOf returns the simulated board with that product name.
func boardOf(product string) (id string, board model.Board, known bool) {
	for _, id := range model.BoardIDs() {
		board, err := model.BoardByID(id)
		if err == nil && board.Product.Name == product && board.MIG.Capable() {
			return id, board, true
		}
	}
	return "", model.Board{}, false
}

// simulated returns the profiles of the simulated driver of that version.
func simulated(board model.Board, driver gpu.Driver) map[string]shape {
	named := map[string]shape{}
	branch, _, _ := strings.Cut(driver.Version, ".")
	number, _ := strconv.Atoi(branch)
	for _, p := range board.MIG.Profiles {
		if p.Since > number {
			continue
		}
		s := shape{ID: int(p.ID), Slices: p.Slices, MaxInstances: p.Instances, Engines: gpu.Capacity{
			Multiprocessors: uint32(p.Multiprocessors), CopyEngines: uint32(p.Engines.Copy), Decoders: uint32(p.Engines.Decoder),
			JPEGEngines: uint32(p.Engines.JPEG), OFAEngines: uint32(p.Engines.OFA),
		}}
		for _, at := range p.Placements() {
			s.Placements = append(s.Placements, gpu.Placement{Start: int(at.Start), Size: int(at.Size)})
		}
		named[p.Name] = s
	}
	return named
}
