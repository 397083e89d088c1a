package model

import (
	"fmt"
	"math"
	"sort"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func capable() []string {
	var ids []string
	for _, board := range boards {
		if board.MIG.Capable() {
			ids = append(ids, board.ID)
		}
	}
	return ids
}

// The memory in a profile's name is its share of the GPU's memory in eighths, rounded up.
func TestProfiles_Names_MatchMemory(t *testing.T) {
	placements := map[string]int{}
	for _, board := range boards {
		total := math.Ceil(float64(board.Memory.TotalMiB) / 1024)
		seen := map[uint32]bool{}
		for _, p := range board.MIG.Profiles {
			eighths := math.Ceil(float64(p.MemoryMiB) / float64(board.Memory.TotalMiB) * 8)
			want := fmt.Sprintf("%dg.%.0fgb", p.Slices, math.Round(eighths/8*total))
			if p.Media == MediaExtra {
				want += "+me"
			}
			assert.Equal(t, want, p.Name, board.ID)
			assert.False(t, seen[p.ID], "%s: id %d is there twice", board.ID, p.ID)
			seen[p.ID] = true
			placements[board.ID] += len(p.Starts)
		}
		if !board.MIG.Capable() {
			continue
		}
		whole := board.MIG.Profiles[len(board.MIG.Profiles)-1]
		assert.Equal(t, board.MIG.Multiprocessors, whole.Multiprocessors, board.ID)
		assert.Equal(t, board.MIG.MaxDevices, whole.Slices, board.ID)
		assert.Equal(t, board.Engines.Copy, whole.Engines.Copy, board.ID)
		assert.LessOrEqual(t, whole.MemoryMiB, board.Memory.TotalMiB, board.ID)
	}
	want := map[string]int{"a30": 13, "a100-40": 25, "a100-80": 25, "h100-80": 25, "h200-141": 25, "b200-180": 25}
	assert.Equal(t, want, placements)
}

func TestProfiles_DriverBranch_Listed(t *testing.T) {
	names := map[DriverVersion][]string{
		"450.248.02": {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
		"470.256.02": {"1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
		"525.147.05": {"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
	}
	for driver, want := range names {
		node, err := New(Spec{Name: "n", Driver: driver, Boards: []string{"a100-40"}})
		require.NoError(t, err)
		session := open(t, node)
		gpu, err := session.ByIndex(0)
		require.NoError(t, err)
		list, err := session.MIGProfiles(gpu)
		require.NoError(t, err)
		var got []string
		for _, p := range list {
			got = append(got, p.Name)
		}
		assert.Equal(t, want, got, driver)
	}
}

// A profile with engines that exist once per GPU has one instance per GPU.
func TestProfiles_MediaEngines_OneInstance(t *testing.T) {
	for media, want := range map[Media]int{MediaPlain: 4, MediaExtra: 1, MediaNone: 4, MediaAll: 1} {
		kind := oneOf4
		kind.media = media
		assert.Equal(t, want, kind.of("1g", 14, 5836, Engines{}).Instances, media)
	}
}

// No board in the catalog supports profiles without media engines; the rule holds for boards that will.
func TestProfiles_MediaExtensions_Exclude(t *testing.T) {
	kinds := map[string]Media{"plain": MediaPlain, "extra": MediaExtra, "none": MediaNone, "all": MediaAll}
	var excluded []string
	for a, x := range kinds {
		for b, y := range kinds {
			if (MIGProfile{Media: x}).excludes(MIGProfile{Media: y}) {
				excluded = append(excluded, a+" "+b)
			}
		}
	}
	sort.Strings(excluded)
	assert.Equal(t, []string{"all all", "all extra", "all plain", "extra all", "extra extra", "plain all"}, excluded)
}
