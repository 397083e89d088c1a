package words

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

const (
	longestLine  = 140
	guideLines   = 150
	exampleLines = 30
)

// pageKind is a row of the list of pages in CONTRIBUTING.md.
var pageKind = regexp.MustCompile(`(?m)^\| \[([a-z-]+\.md)\]\(docs/[a-z-]+\.md\) \| (\w+) \|$`)

// longLines returns the lines of a page beyond the limit. Rows of tables, code, and lines without a space, such as links, cannot be
// wrapped.
func longLines(page string) []int {
	var long []int
	for i, line := range prose(page) {
		if utf8.RuneCountInString(line) > longestLine && !strings.HasPrefix(line, "|") && strings.Contains(strings.TrimLeft(line, "- "), " ") {
			long = append(long, i+1)
		}
	}
	return long
}

// firstExample returns the line of the first block of code, 0 without one.
func firstExample(page string) int {
	for i, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			return i + 1
		}
	}
	return 0
}

func TestDocs_EachPage_OfOneKind(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{}
	for _, row := range pageKind.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		assert.NotContains(t, kinds, row[1], "listed twice")
		assert.Contains(t, []string{"guide", "reference", "explanation"}, row[2], row[1])
		kinds[row[1]] = row[2]
	}
	pages := slices.DeleteFunc(matching(t, []string{"docs/*.md"}), generated)
	for _, file := range pages {
		page, kind := read(t, file), kinds[path.Base(file)]
		assert.NotEmpty(t, kind, "%s is not in the list of pages of CONTRIBUTING.md", file)
		if kind == "guide" {
			assert.LessOrEqual(t, strings.Count(page, "\n"), guideLines, "%s: lines of a guide", file)
			first := firstExample(page)
			assert.True(t, 0 < first && first <= exampleLines, "%s: the first example is in line %d", file, first)
		}
	}
	assert.Len(t, kinds, len(pages), "CONTRIBUTING.md lists pages that do not exist")
}

func TestDocs_Lines_Wrapped(t *testing.T) {
	t.Parallel()
	for _, file := range slices.DeleteFunc(docPages(t), generated) {
		assert.Empty(t, longLines(read(t, file)), "%s: lines of more than %d characters", file, longestLine)
	}
}

func TestLongLines_TablesAndCode_LeftOut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ab ", longestLine/3+1)
	assert.Equal(t, []int{2}, longLines("short\n"+long+"\n| "+long+"|\n```\n"+long+"\n```\n- "+strings.ReplaceAll(long, " ", "")))
	assert.Equal(t, 3, firstExample("a\n\n```yaml\nb\n```\n"))
	assert.Zero(t, firstExample("a `b`"))
}
