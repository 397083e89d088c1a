package model

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// piece is one instance of one profile at one placement.
type piece struct {
	profile MIGProfile
	at      Placement
}

func pieces(board Board) []piece {
	var all []piece
	for _, p := range board.MIG.Profiles {
		for _, at := range p.Placements() {
			all = append(all, piece{p, at})
		}
	}
	return all
}

// legal reports whether a GPU supports a set of instances, from memory slices and counts alone.
func legal(all []piece, set uint) bool {
	var slicesUsed, media, compute int
	for i, p := range all {
		if set&(1<<i) == 0 {
			continue
		}
		mask := (1<<p.at.Size - 1) << p.at.Start
		if slicesUsed&mask != 0 {
			return false
		}
		slicesUsed |= mask
		compute += p.profile.Slices
		if p.profile.Media == MediaExtra {
			media++
		}
	}
	return media <= 1 && compute <= 7
}

// The sets that can be created step by step are exactly the legal ones, on every board: 76 sets of the A30's 13
// placements, 2319 of the others' 25.
func TestCreateGPUInstance_AllSequences_ReachLegalSets(t *testing.T) {
	t.Parallel()
	for _, id := range capable() {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			m := inMIGMode(t, id)
			all := pieces(m.node.Boards()[0])
			reached, want := reachable(m, all), map[uint]bool{}
			addLegal(want, all, 0, 0)
			assert.True(t, maps.Equal(want, reached), "reached %d sets, %d are legal", len(reached), len(want))
			assert.Len(t, reached, map[bool]int{true: 76, false: 2319}[id == "a30"])
		})
	}
}

// reachable returns the sets that can be created. Every instance is requested in addition to each of them.
func reachable(m *migGPU, all []piece) map[uint]bool {
	m.Helper()
	reached := map[uint]bool{0: true}
	var grow func(set uint)
	grow = func(set uint) {
		for i, p := range all {
			next := set | 1<<i
			if reached[next] {
				continue
			}
			h, err := m.CreateGPUInstance(m.Context(), m.gpu, p.profile.ID, &p.at, asRoot)
			if err != nil {
				require.Equal(m, InsufficientResources, err)
				continue
			}
			reached[next] = true
			grow(next)
			require.NoError(m, m.DestroyGPUInstance(m.Context(), h, asRoot))
		}
	}
	grow(0)
	return reached
}

// addLegal adds the legal supersets of set with later pieces. Every subset of a legal set is legal.
func addLegal(sets map[uint]bool, all []piece, set uint, from int) {
	sets[set] = true
	for i := from; i < len(all); i++ {
		if next := set | 1<<i; legal(all, next) {
			addLegal(sets, all, next, i+1)
		}
	}
}

// On boards with 8 memory slices, memory slices and media engines decide; the 7 compute slices never do.
func TestLegalSets_MemorySlicesAndMedia_Suffice(t *testing.T) {
	for _, id := range capable() {
		board, err := BoardByID(id)
		require.NoError(t, err)
		all := pieces(board)
		var m mig
		var walk func(from, compute int)
		walk = func(from, compute int) {
			require.LessOrEqual(t, compute, board.MIG.MaxDevices, id)
			for i := from; i < len(all); i++ {
				if !m.admits(all[i].profile, all[i].at) {
					continue
				}
				m.instances = append(m.instances, &gpuInstance{profile: all[i].profile, placement: all[i].at})
				walk(i+1, compute+all[i].profile.Slices)
				m.instances = m.instances[:len(m.instances)-1]
			}
		}
		walk(0, 0)
	}
}
