package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// strataOf returns the given number of points, three for each site.
func strataOf(points int) (strata []stratum) {
	for i := range points {
		strata = append(strata, stratum{Act: i / 30, Site: fmt.Sprint("site ", i/3)})
	}
	return strata
}

func TestShare_AllShares_EveryPoint(t *testing.T) {
	t.Parallel()
	for _, of := range []int{1, 2, 5} {
		strata := strataOf(300)
		times := make([]int, len(strata))
		for index := range of {
			for i, chosen := range (share{index, of}).choose("a scenario", strata) {
				if chosen {
					times[i]++
				}
			}
		}
		assert.NotContains(t, times, 0, "%d shares", of)
	}
}

func TestShare_EachShare_OnePointOfEachStratum(t *testing.T) {
	t.Parallel()
	strata := strataOf(300)
	for index := range 5 {
		has, all := map[stratum]bool{}, map[stratum]bool{}
		tried := 0
		for i, chosen := range (share{index, 5}).choose("a scenario", strata) {
			all[strata[i]] = true
			if chosen {
				tried++
				has[strata[i]] = true
			}
		}
		assert.Equal(t, all, has)
		assert.Less(t, tried, 200, "of 300 points in 100 strata")
	}
}

func TestShare_OneCommit_SameChoice(t *testing.T) {
	t.Parallel()
	strata := strataOf(300)
	first, second := share{3, 5}.choose("a scenario", strata), share{3, 5}.choose("a scenario", strata)
	assert.Equal(t, first, second)
	assert.NotEqual(t, first, share{3, 5}.choose("another scenario", strata))
}

func TestParseShare_Text_ShareOrError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]share{"": everything, "0/1": {0, 1}, "4/5": {4, 5}} {
		got, err := parseShare(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"5/5", "-1/5", "1", "1/", "/5", "1/0", "a/b"} {
		_, err := parseShare(text)
		assert.Error(t, err, text)
	}
}

func TestFamilyShare_ChangedFolder_MorePoints(t *testing.T) {
	t.Setenv("LIFECYCLE_SHARE", "3/5")
	list := filepath.Join(t.TempDir(), "changed")
	for _, test := range []struct {
		changed, family string
		want            share
	}{
		{"pkg/plugin/mps/step.go\nREADME.md\n", "mps", share{1, 2}},
		{"pkg/plugin/mps/step.go\n", "mig", share{3, 5}},
		{"pkg/mpsx/step.go\n", "mps", share{3, 5}},
		{"", "mps", share{3, 5}},
	} {
		require.NoError(t, os.WriteFile(list, []byte(test.changed), 0o600))
		t.Setenv("LIFECYCLE_CHANGED", list)
		got, err := familyShare(test.family)
		require.NoError(t, err)
		assert.Equal(t, test.want, got, "%s, %q", test.family, test.changed)
	}
	t.Setenv("LIFECYCLE_CHANGED", "")
	got, err := familyShare("mig")
	require.NoError(t, err)
	assert.Equal(t, share{1, 2}, got, "nothing is known of the change")
	t.Setenv("LIFECYCLE_SHARE", "1/2")
	got, err = familyShare("mig")
	require.NoError(t, err)
	assert.Equal(t, share{1, 2}, got)
}

func TestFamilies_Folders_Exist(t *testing.T) {
	t.Parallel()
	for family, dirs := range families {
		for _, dir := range dirs {
			assert.DirExists(t, filepath.Join("../..", dir), family)
		}
	}
	for _, s := range append(append([]scenario{}, scenarios...), allMPSScenarios...) {
		assert.Contains(t, families, s.family, s.name)
	}
}
