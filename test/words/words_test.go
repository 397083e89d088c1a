package words

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProse_PlantedWord_Found puts each word of the table into a sentence.
func TestProse_PlantedWord_Found(t *testing.T) {
	t.Parallel()
	table := compiled(t, Prose)
	for text, word := range map[string]string{
		"asks for a slice of the GPU":                           "slice",
		"Slices run no graphics":                                "Slices",
		"their programs run in turns":                           "in turns",
		"two containers take\n// turns on it":                   "take // turns",
		"longer time slices than usual":                         "longer time slices",
		"the GPU is cut in two":                                 "is cut",
		"offered in parts":                                      "in parts",
		"a GPU is to be offered":                                "offered",
		"specs are made anew":                                   "anew",
		"MPS is not served by this version":                     "served",
		"the debt is tried again":                               "debt",
		"what it owes":                                          "owes",
		"told in an Event":                                      "told",
		"it looks at the bus":                                   "looks",
		"the claim that was given the GPU":                      "was given",
		"hands it out":                                          "hands it out",
		"when the process ends":                                 "process ends",
		"the laws of a claim":                                   "laws",
		"random lives":                                          "lives",
		"fails at every touch":                                  "every touch",
		"what old pod specs ask for":                            "old pod specs",
		"forks ignore the second":                               "forks",
		"Mistakes are refused":                                  "Mistakes",
		"changes are applied as they come":                      "as they come",
		"Two commands":                                          "Two commands",
		"a loop with patience":                                  "patience",
		"settles what is left":                                  "settles",
		"an orphan of the claim":                                "orphan",
		"the allotment":                                         "allotment",
		"nobody uses it":                                        "nobody",
		"memory: is not a field":                                "is not a field",
		"dropped in silence":                                    "in silence",
		"Event ConfigRefused":                                   "ConfigRefused",
		"the metric prism_gpus_changing":                        "prism_gpus_changing",
		"as the keeper does":                                    "keeper",
		"the taint of untaint":                                  "untaint",
		"| a row | of a table about MIG slices | next | cell |": "slices",
	} {
		var found []string
		for _, f := range table.Find(text) {
			found = append(found, f.Word)
		}
		assert.Contains(t, found, word, text)
	}
}

// TestProse_WordsOfTheField_Pass: each of these is right, although it contains a word of the table or is near one.
func TestProse_WordsOfTheField_Pass(t *testing.T) {
	t.Parallel()
	table := compiled(t, Prose)
	for _, text := range []string{
		"a ResourceSlice, ResourceSlices and kubectl get resourceslices", "memory slices", "the time-slice interval", "time-sliced shares",
		"a slice of bytes", "in return", "it turns MIG mode on", "claims are tried in turn", "calls that are cut off", "a power cut",
		"First come, first served", "Served at `/metrics`", "the counter memory-slice-3", "other served versions of the API", "the payload", "is looked up", "looks like a UUID", "a key is given twice",
		"given a name", "touch /tmp/end", "lives below the root", "the lifetime", "forks of NVIDIA's device plugin", "evicted by mistake",
		"--cascade=orphan", "GPUs whose shares are free", "the header", "ends with 1", "NodeConfigInvalid, NodeConfigAccepted", "livenessProbe",
		"TimeSliceIntervalNotSet", "schedulers forget a name",
		"an operator who reads it",
	} {
		for _, f := range table.Find(text) {
			t.Errorf("%q: %s", text, f)
		}
	}
}

func TestFind_LineOfTheWord_Counted(t *testing.T) {
	t.Parallel()
	table, err := Compile([]Rule{{Not: "two words", Except: "not two words", But: "one"}})
	require.NoError(t, err)
	assert.Equal(t, []Finding{{2, "Two words", "one"}, {3, "two # words", "one"}}, table.Find("not two\nwords Two words\n# two\n# words"))
	table, err = Compile([]Rule{{Not: "two", Except: "a….two", But: "one"}})
	require.NoError(t, err)
	assert.Equal(t, []Finding{{1, "two", "one"}}, table.Find("a….two, two"))
	_, err = Compile([]Rule{{Not: "("}})
	require.Error(t, err)
}

func TestParseCode_Planted_EachKindFound(t *testing.T) {
	t.Parallel()
	code, err := ParseCode("x.go", []byte(`// Package x offers
// nothing. Offer is a name, and Offers is none.
package x

import "slices"

type Offer int

//`+"go:generate tool"+`
type MIGOffer struct {
	debt int `+"`json:\"debt of it\"`"+`
}

func keeper(log logger) (stray error) {
	for _, lives := range slices.Values(x) {
		log.Info("no capital")
		log.Error(err, "A stop.", "key", "two words")
	}
	http.Error(w, "fine here", 500)
	allotment := "slice"
	allotment = "\tlast one"
	return
}
`))
	require.NoError(t, err)
	assert.Equal(t, []Text{{1, "// Package x offers\n// nothing. Offer is a name, and Offers is none."}}, code.Comments)
	assert.Equal(t, []Text{{16, "no capital"}, {17, "A stop."}, {17, "two words"}, {19, "fine here"}, {21, "\tlast one"}}, code.Messages)
	assert.Equal(t, []Text{{16, "no capital"}, {17, "A stop."}}, code.Logs)
	names := []string{}
	for _, name := range code.Names {
		names = append(names, name.Text)
	}
	assert.Equal(t, []string{"offer", "mig offer", "debt", "keeper", "log", "stray", "", "lives", "allotment"}, names)
	assert.Len(t, search(compiled(t, Identifiers), code.Names), 7)
	assert.Equal(t, []Finding{{16, "no capital", "a log message begins with a capital letter"}, {17, "A stop.", "a log message has no full stop"}}, badLogs(code.Logs))
	words := []string{}
	for _, f := range code.InComments(compiled(t, Prose)) {
		words = append(words, f.Word)
	}
	assert.Equal(t, []string{"offers", "Offers"}, words)
	_, err = ParseCode("x.go", []byte("not Go"))
	require.Error(t, err)
}

func TestSplitName_ChangesOfCase_Split(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"MIGOffer_ofGPU": "mig offer of gpu", "whoWaits": "who waits", "GPU": "gpu", "x": "x", "newGPUTurns": "new gpu turns", "_": "",
	} {
		assert.Equal(t, want, SplitName(name), name)
	}
	assert.Equal(t, "mig patience", FileName("pkg/x/mig_patience_test.go"))
	assert.NotEmpty(t, compiled(t, Files).Find(FileName("pkg/plugin/prepare/orphans.go")))
	assert.Empty(t, compiled(t, Files).Find(FileName("pkg/plugin/prepare/recover.go")))
	assert.NotEmpty(t, compiled(t, Headings).Find(TableHeadings("x\n| seen | reason |\n|---|---|\n| seen | x |")[0].Text))
	assert.Len(t, TableHeadings("x\n| symptom | cause |\n|---|---|\n| seen | x |"), 1)
}

func TestLinks_CodeAndOtherSites_LeftOut(t *testing.T) {
	t.Parallel()
	text := "[a](b.md#c) `[x](code.md)`\n```\n[x](block.md)\n# no heading\n```\n[d](https://example.com) and [e](#f)\n"
	assert.Equal(t, []Text{{1, "b.md#c"}, {6, "#f"}}, Links(text))
	assert.Empty(t, Anchors(text))
}

func TestAnchors_Headings_AsOnGitHub(t *testing.T) {
	t.Parallel()
	assert.Equal(t, map[string]bool{"nvidiacomgpu": true, "beside-a-b-or-nvidias-c": true, "twice": true, "twice-1": true, "a-link": true},
		Anchors("# `nvidia.com/gpu`\n## Beside a b, or NVIDIA's c\n### Twice\n### Twice\n## A [link](x.md) ##\n"))
}

// TestLater_OtherFiles_Checked: a list of pending texts only covers the files that it names.
func TestLater_OtherFiles_Checked(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"docs/mig.md", "hack/localcluster/node/boot.go", "pkg/none/none.go", "pkg/claimed/x.go"} {
		assert.Empty(t, later(file, "comments"), file)
		assert.Empty(t, later(file, "messages"), file)
	}
}
