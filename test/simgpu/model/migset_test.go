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

// legal says, from slices and counts alone, which sets of instances a GPU can hold.
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

// What can be made step by step on an A30 is exactly what is legal.
func TestReachableSets(t *testing.T) {
	m := inMIGMode(t, "a30")
	all := pieces(m.node.Boards()[0])
	reached := map[uint]bool{0: true}
	var grow func(set uint)
	grow = func(set uint) {
		for i, p := range all {
			next := set | 1<<i
			if reached[next] {
				continue
			}
			h, err := m.CreateGPUInstance(t.Context(), m.gpu, p.profile.ID, &p.at, asRoot)
			if err != nil {
				require.Equal(t, InsufficientResources, err)
				continue
			}
			reached[next] = true
			grow(next)
			require.NoError(t, m.DestroyGPUInstance(t.Context(), h, asRoot))
		}
	}
	grow(0)
	want := map[uint]bool{}
	for set := range uint(1) << len(all) {
		if legal(all, set) {
			want[set] = true
		}
	}
	assert.True(t, maps.Equal(want, reached), "reached %d sets, %d are legal", len(reached), len(want))
}

// On the boards with 8 memory slices, slices and media engines alone decide: the 7 compute slices never do.
func TestMemorySlicesDecide(t *testing.T) {
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
