package words

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// unitOnly are folders in which tests may be named by their unit alone: commands and docs name them.
var unitOnly = []string{"test/e2e"}

// testName finds the tests of a file; TestMain has another parameter.
var testName = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)

// badTestNames returns the tests of a file that are not named TestUnit_Situation_Outcome.
func badTestNames(source string) []Finding {
	var found []Finding
	for _, at := range testName.FindAllStringSubmatchIndex(source, -1) {
		name := source[at[2]:at[3]]
		parts := strings.Split(strings.TrimPrefix(name, "Test"), "_")
		if len(parts) < 3 || slices.Contains(parts, "") {
			found = append(found, Finding{1 + strings.Count(source[:at[2]], "\n"), name, "TestUnit_Situation_Outcome"})
		}
	}
	return found
}

func TestCode_TestNames_UnitSituationOutcome(t *testing.T) {
	t.Parallel()
	left, tests := count{}, 0
	files := append(goFiles(t), "test/words/words_test.go", "test/words/tree_test.go")
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") || slices.Contains(unitOnly, path.Dir(file)) {
			continue
		}
		source := read(t, file)
		tests += len(testName.FindAllString(source, -1))
		left.report(t, file, "names of tests", badTestNames(source))
	}
	assert.NotZero(t, tests)
	left.log(t)
}

func TestBadTestNames_PlantedName_Found(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []Finding{
		{2, "TestTheLabelChooses", "TestUnit_Situation_Outcome"}, {3, "TestLabel_Chooses", "TestUnit_Situation_Outcome"},
		{4, "TestLabel__Chosen", "TestUnit_Situation_Outcome"},
	}, badTestNames(`package x
func TestTheLabelChooses(t *testing.T) {}
func TestLabel_Chooses(t *testing.T) {}
func TestLabel__Chosen(t *testing.T) {}
func TestLabel_Changes_EntryChosen(t *testing.T) {}
func TestMain(m *testing.M) {}
`))
}
