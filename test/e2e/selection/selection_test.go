package selection

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

// testFunctions are the tests of test/e2e.
func testFunctions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*_test.go")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	require.NotEmpty(t, names)
	return names
}

func TestTests_EveryTestOfE2E_InTableOnce(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, test := range Tests {
		listed = append(listed, test.Name)
	}
	assert.ElementsMatch(t, testFunctions(t), listed)
}

func TestTests_EveryRow_HasGroupThirdAndAreas(t *testing.T) {
	t.Parallel()
	for _, test := range Tests {
		assert.Contains(t, []string{node, layouts, nodes, profile, mps}, test.Group, test.Name)
		assert.Contains(t, []int{core, first, second, third}, test.Third, test.Name)
		assert.NotEmpty(t, test.Areas, test.Name)
		for _, name := range test.Areas {
			assert.True(t, slices.ContainsFunc(Areas, func(a Area) bool { return a.Name == name }), "%s: unknown area %q", test.Name, name)
		}
	}
}

func TestAreas_EveryPath_Exists(t *testing.T) {
	t.Parallel()
	for _, area := range Areas {
		assert.NotEmpty(t, area.Paths, area.Name)
		assert.True(t, slices.ContainsFunc(Tests, func(test Test) bool { return slices.Contains(test.Areas, area.Name) }), "no test of area %s", area.Name)
		for _, pattern := range area.Paths {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			require.NoError(t, err, pattern)
			assert.NotEmpty(t, found, "%s of area %s matches no file", pattern, area.Name)
		}
	}
}

// TestAreas_FileOfTest_Covered: a change of a test runs it.
func TestAreas_FileOfTest_Covered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, test := range Tests {
			if !strings.Contains(string(text), "\nfunc "+test.Name+"(") {
				continue
			}
			names := ChangedAreas([]string{"test/e2e/" + filepath.Base(file)})
			assert.True(t, slices.ContainsFunc(test.Areas, func(name string) bool { return slices.Contains(names, name) }),
				"%s is in %s, which no area of it covers", test.Name, file)
		}
	}
}

func TestTests_Thirds_Balanced(t *testing.T) {
	t.Parallel()
	counts := make([]int, Thirds)
	always := 0
	for _, test := range Tests {
		if test.Third == core {
			always++
			continue
		}
		counts[test.Third]++
	}
	assert.LessOrEqual(t, slices.Max(counts)-slices.Min(counts), 1, "rotated tests of each third: %v", counts)
	assert.GreaterOrEqual(t, always, len(Tests)/2, "tests that always run")
}

func TestSelect_NothingChanged_CoreAndOneThird(t *testing.T) {
	t.Parallel()
	for i := range Thirds {
		for _, test := range Select(Request{Third: i}) {
			assert.Contains(t, []int{core, i}, test.Third, test.Name)
		}
	}
}

// TestSelect_AllShares_UnionIsFull: every test is in some share, and core tests are in all.
func TestSelect_AllShares_UnionIsFull(t *testing.T) {
	t.Parallel()
	times := map[string]int{}
	for i := range Thirds {
		for _, test := range Select(Request{Third: i}) {
			times[test.Name]++
		}
	}
	full := Select(Request{Full: true})
	require.Len(t, full, len(Tests))
	for _, test := range full {
		want := 1
		if test.Third == core {
			want = Thirds
		}
		assert.Equal(t, want, times[test.Name], test.Name)
	}
}

func TestSelect_FileOfAreaChanged_AllOfTheArea(t *testing.T) {
	t.Parallel()
	for i := range Thirds {
		selected := Select(Request{Third: i, Changed: []string{"pkg/plugin/mps/daemon/any.go"}})
		for _, test := range Tests {
			assert.Equal(t, test.Third == core || test.Third == i || slices.Contains(test.Areas, "mps"), slices.ContainsFunc(selected, func(s Test) bool {
				return s.Name == test.Name
			}), test.Name)
		}
	}
}

func TestSelect_OnlyAreas_NothingElse(t *testing.T) {
	t.Parallel()
	selected := Select(Request{Third: OnlyAreas, Changed: []string{"pkg/plugin/timeslice/any.go"}})
	assert.NotEmpty(t, selected)
	for _, test := range selected {
		assert.Contains(t, test.Areas, "time-slicing", test.Name)
	}
	assert.Empty(t, Select(Request{Third: OnlyAreas, Changed: []string{"README.md"}}))
}

func TestSelect_FileOfNoArea_NothingMore(t *testing.T) {
	t.Parallel()
	assert.Equal(t, Select(Request{Third: 1}), Select(Request{Third: 1, Changed: []string{"README.md", "pkg/mpsx/any.go", "mps"}}))
}

func TestSelect_NothingToCompareWith_TwoThirds(t *testing.T) {
	t.Parallel()
	var thirds []int
	for _, test := range Select(Request{Third: 2, Unknown: true}) {
		if !slices.Contains(thirds, test.Third) {
			thirds = append(thirds, test.Third)
		}
	}
	assert.ElementsMatch(t, []int{core, 2, 0}, thirds)
}

func TestParseShare_OutOfRange_Refused(t *testing.T) {
	t.Parallel()
	i, err := ParseShare("2/3")
	require.NoError(t, err)
	assert.Equal(t, 2, i)
	i, err = ParseShare("areas")
	require.NoError(t, err)
	assert.Equal(t, OnlyAreas, i)
	for _, bad := range []string{"", "3/3", "-1/3", "1/5", "1", "x/3"} {
		_, err := ParseShare(bad)
		assert.Error(t, err, bad)
	}
}

func TestShareOf_SameTree_SameShare(t *testing.T) {
	t.Parallel()
	for tree, want := range map[string]int{"00000003ff": 0, "00000004ff": 1, "fffffffe00": 2} {
		got, err := ShareOf(tree)
		require.NoError(t, err)
		assert.Equal(t, want, got, tree)
	}
	_, err := ShareOf("HEAD")
	assert.Error(t, err)
}

func TestPattern_NameThatIsPartOfAnother_NotMatched(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(Pattern([]Test{{Name: "TestMIGByCapacity"}, {Name: "TestWholeProbe"}}))
	assert.True(t, pattern.MatchString("TestMIGByCapacity"))
	assert.True(t, pattern.MatchString("TestWholeProbe"))
	assert.False(t, pattern.MatchString("TestMIGByCapacity_NoCapacity_Refused"))
}

func TestGroups_EveryTest_InOneGroup(t *testing.T) {
	t.Parallel()
	total := 0
	for _, group := range Groups(Tests) {
		total += len(group)
		for _, test := range group {
			assert.Equal(t, group[0].Group, test.Group)
		}
	}
	assert.Equal(t, len(Tests), total)
}
