package words

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kind is a group of texts.
type kind struct {
	name string
	// rates returns the counts of each file.
	rates func(t *testing.T) map[string]Rate
}

// kinds are the texts whose sentences are counted.
var kinds = []kind{
	{"docs", docsRates},
	{"generated docs", generatedRates},
	{"comments of Go", commentRates},
}

// limits are occurrences in 1,000 words, in the order of Constructions: at most twice the rates of other DRA drivers.
var limits = [4]float64{0.5, 0.9, 0.2, 2.4}

// chartValues is the chart's file of values, whose comments are docs.
const chartValues = "deployments/helm/prism/values.yaml"

// generated reports whether hack/reference writes a whole page from the texts of Go code and chart.
func generated(page string) bool {
	return path.Dir(page) == "docs/reference" || page == "docs/metrics.md"
}

// docPages returns the Markdown pages for users and contributors.
func docPages(t *testing.T) []string {
	t.Helper()
	return matching(t, []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "deployments/helm/prism/*.md"})
}

func docsRates(t *testing.T) map[string]Rate {
	t.Helper()
	var comments Rate
	comments.Count(YAMLComments(read(t, chartValues)))
	rates := map[string]Rate{chartValues: comments}
	for _, page := range docPages(t) {
		if !generated(page) {
			rates[page] = pageRate(t, page)
		}
	}
	return rates
}

func generatedRates(t *testing.T) map[string]Rate {
	t.Helper()
	rates := map[string]Rate{}
	for _, page := range docPages(t) {
		if generated(page) {
			rates[page] = pageRate(t, page)
		}
	}
	return rates
}

func pageRate(t *testing.T, page string) Rate {
	t.Helper()
	var rate Rate
	rate.Count(Sentences(read(t, page)))
	return rate
}

// commentRates counts by folder of the repository and, below pkg, by package.
func commentRates(t *testing.T) map[string]Rate {
	t.Helper()
	rates := map[string]Rate{}
	for _, file := range goFiles(t) {
		parsed, err := ParseCode(file, []byte(read(t, file)))
		require.NoError(t, err)
		var rate Rate
		for _, comment := range parsed.Comments {
			rate.Count(comment.Text)
		}
		parts := strings.Split(path.Dir(file), "/")
		folder := strings.Join(parts[:min(2, len(parts))], "/")
		total := rates[folder]
		total.Add(rate)
		rates[folder] = total
	}
	return rates
}

func TestSentences_HardConstructions_BelowLimits(t *testing.T) {
	t.Parallel()
	for i, construction := range Constructions {
		t.Logf("column %d: %s", i+1, construction.Name)
	}
	for _, k := range kinds {
		files := k.rates(t)
		require.NotEmpty(t, files)
		var total Rate
		names := []string{}
		for name, rate := range files {
			total.Add(rate)
			names = append(names, name)
		}
		slices.Sort(names)
		t.Logf("%s  %s  limits %v", total.String(), k.name, limits)
		for _, name := range names {
			rate := files[name]
			t.Logf("  %s  %s", rate.String(), name)
		}
		for i, rate := range total.Per1000() {
			assert.LessOrEqualf(t, rate, limits[i], "%s: %q in 1,000 words; write %s", k.name, Constructions[i].Name, Constructions[i].Write)
		}
	}
}

func TestCount_EachConstruction_Counted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{
		"what the claim requests":                        {4, [4]int{1, 0, 0, 0}},
		"// it is what\n// is left":                      {5, [4]int{1, 0, 0, 0}},
		"Where no device\nis free":                       {5, [4]int{0, 1, 0, 0}},
		"those of a node, and that of a claim":           {9, [4]int{0, 0, 2, 0}},
		"it has\n# a lock | they have no lock":           {8, [4]int{0, 0, 0, 2}},
		"somewhat the same":                              {3, [4]int{}},
		"directories where plugins register, 12 - 3 = 9": {4, [4]int{}},
	} {
		var rate Rate
		rate.Count(text)
		assert.Equal(t, want, rate, text)
	}
	rate := Rate{Words: 2000, Found: [4]int{1, 2, 3, 4}}
	rate.Add(Rate{Words: 2000, Found: [4]int{1, 0, 1, 0}})
	assert.Equal(t, [4]float64{0.5, 0.5, 1, 1}, rate.Per1000())
	assert.Zero(t, new(Rate).Per1000())
}

func TestSentences_CodeAndComments_LeftOut(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "A x is\n\n\n\nhere", Sentences("A `what is` is\n```\nwhere the\n```\nhere<!-- what is generated -->"))
	assert.Equal(t, " over it\n beside it", YAMLComments("# over it\nkey: a#b # beside it\nother: 1\n"))
}
