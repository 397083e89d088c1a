package words

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/events"
)

const root = "../.."

// texts are files that are checked line by line, as path.Match patterns below the root.
var texts = []string{
	"README.md", "CONTRIBUTING.md", "Makefile", "Dockerfile", "docs/*.md", "docs/reference/*", "hack/*.sh", "hack/localcluster/README.md",
	"demo/*", "demo/specs/*/*", "deployments/container/*", "deployments/helm/prism/*", "deployments/helm/prism/templates/*",
}

// code are the folders whose Go files are checked: messages, comments, names and the names of files.
var code = []string{"api", "cmd", "deployments", "hack", "pkg", "test"}

// pending are folders and files whose words are not changed yet, "/..." with all folders below: their findings are only counted.
var pending = []string{}

// messagesOnly are folders in which messages and logs of the product are checked; other words are only counted.
var messagesOnly = []string{}

// exception is a word that stays in a file.
type exception struct{ file, word, because string }

var exceptions = []exception{
	{"deployments/helm/prism/templates/_helpers.tpl", "slice", "kindIs calls Go's type by its name"},
}

func TestTexts_Tree_WordsOfTheField(t *testing.T) {
	t.Parallel()
	prose, headings := compiled(t, Prose), compiled(t, Headings)
	left := count{}
	for _, file := range matching(t, texts) {
		text := read(t, file)
		found := placed(1, prose.Find(text))
		if path.Ext(file) == ".md" {
			for _, heading := range TableHeadings(text) {
				found = append(found, placed(heading.Line, headings.Find(heading.Text))...)
			}
		}
		left.report(t, file, "text", found)
	}
	left.log(t)
}

func TestCode_Tree_WordsOfTheField(t *testing.T) {
	t.Parallel()
	prose, names, files := compiled(t, Prose), compiled(t, Identifiers), compiled(t, Files)
	left := count{}
	for _, file := range goFiles(t) {
		parsed, err := ParseCode(file, []byte(read(t, file)))
		require.NoError(t, err)
		messages := "messages"
		if strings.HasSuffix(file, "_test.go") {
			messages = "messages of tests"
		}
		left.report(t, file, messages, search(prose, parsed.Messages))
		left.report(t, file, "comments", parsed.InComments(prose))
		left.report(t, file, "names", search(names, parsed.Names))
		left.report(t, file, "files", search(files, []Text{{1, FileName(file)}}))
		if !strings.HasSuffix(file, "_test.go") {
			left.report(t, file, "logs", badLogs(parsed.Logs))
		}
	}
	left.log(t)
}

func TestExceptions_OfFiles_Needed(t *testing.T) {
	t.Parallel()
	prose := compiled(t, Prose)
	for _, e := range exceptions {
		found := slices.ContainsFunc(prose.Find(read(t, e.file)), func(f Finding) bool { return f.Word == e.word })
		assert.Truef(t, found, "%s no longer contains the word %q (%s): remove the exception", e.file, e.word, e.because)
	}
}

func TestDocs_Links_Resolve(t *testing.T) {
	t.Parallel()
	for _, file := range markdown(t) {
		for _, target := range Links(read(t, file)) {
			name, anchor, _ := strings.Cut(target.Text, "#")
			there := file
			if name != "" {
				there = path.Join(path.Dir(file), name)
			}
			if _, err := os.Stat(filepath.Join(root, there)); err != nil {
				t.Errorf("%s:%d: link to %s, which does not exist", file, target.Line, there)
				continue
			}
			if anchor != "" && !Anchors(read(t, there))[anchor] {
				t.Errorf("%s:%d: link to #%s: no such heading in %s", file, target.Line, anchor, there)
			}
		}
	}
}

// TestMentions_OfDocs_Exist: documents that code and chart mention exist, with and without an anchor.
func TestMentions_OfDocs_Exist(t *testing.T) {
	t.Parallel()
	mention := regexp.MustCompile(`\bdocs/([a-z-]+\.md)(#[a-z0-9-]+)?`)
	found := 0
	for _, file := range append(matching(t, texts), goFiles(t)...) {
		for _, match := range mention.FindAllStringSubmatch(read(t, file), -1) {
			found++
			document := "docs/" + match[1]
			if _, err := os.Stat(filepath.Join(root, document)); err != nil {
				t.Errorf("%s names %s, which does not exist", file, document)
			} else if match[2] != "" && !Anchors(read(t, document))[match[2][1:]] {
				t.Errorf("%s names %s%s, which does not exist", file, document, match[2])
			}
		}
	}
	assert.NotZero(t, found)
}

// TestDocs_NamesOfTheProduct_Exist: tests, Events and metrics that docs name exist in the code.
func TestDocs_NamesOfTheProduct_Exist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	for _, file := range walk(t, root, ".go") {
		source.WriteString(read(t, file))
	}
	tests := regexp.MustCompile("`(Test[A-Z]\\w*)(…?)`")
	reasons := regexp.MustCompile("Events? (?:\\()?`(\\w+)`(?: or `(\\w+)`)?")
	metrics := regexp.MustCompile("`(prism_[a-z_]+)[`{]")
	known := []string{"FailedCreate"} // of Kubernetes
	for _, event := range events.All() {
		known = append(known, event.Reason)
	}
	for _, file := range markdown(t) {
		text := read(t, file)
		for _, match := range tests.FindAllStringSubmatch(text, -1) {
			end := "("
			if match[2] != "" {
				end = ""
			}
			if !strings.Contains(source.String(), "\nfunc "+match[1]+end) {
				t.Errorf("%s names %s, which does not exist", file, match[1])
			}
		}
		for _, match := range reasons.FindAllStringSubmatch(text, -1) {
			for _, reason := range match[1:] {
				if reason != "" && !slices.Contains(known, reason) {
					t.Errorf("%s names the Event %s, which pkg/events does not have", file, reason)
				}
			}
		}
		for _, match := range metrics.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(source.String(), `"`+match[1]+`"`) {
				t.Errorf("%s names the metric %s, which does not exist", file, match[1])
			}
		}
	}
}

func compiled(t *testing.T, rules []Rule) Table {
	t.Helper()
	table, err := Compile(rules)
	require.NoError(t, err)
	return table
}

func search(table Table, texts []Text) []Finding {
	var found []Finding
	for _, text := range texts {
		found = append(found, placed(text.Line, table.Find(text.Text))...)
	}
	return found
}

// placed adds the line of their text to findings.
func placed(line int, found []Finding) []Finding {
	for i := range found {
		found[i].Line += line - 1
	}
	return found
}

func badLogs(messages []Text) []Finding {
	var found []Finding
	for _, message := range messages {
		if bad := BadLog(message.Text); bad != "" {
			found = append(found, Finding{message.Line, message.Text, bad})
		}
	}
	return found
}

// count maps pending folders and files to the number of findings of each kind.
type count map[string]map[string]int

func (c count) report(t *testing.T, file, kind string, found []Finding) {
	t.Helper()
	for _, f := range found {
		if slices.ContainsFunc(exceptions, func(e exception) bool { return e.file == file && e.word == f.Word }) {
			continue
		}
		place := later(file, kind)
		if place == "" {
			t.Errorf("%s:%d: %s", file, f.Line, f)
			continue
		}
		if c[place] == nil {
			c[place] = map[string]int{}
		}
		c[place][kind]++
	}
}

func (c count) log(t *testing.T) {
	t.Helper()
	for _, place := range slices.Sorted(maps.Keys(c)) {
		t.Log("pending:", place, c[place])
	}
}

// later returns the entry of the list that defers this kind of text in a file; empty if none does.
func later(file, kind string) string {
	places := []string{file, path.Dir(file)}
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		places = append(places, folder+"/...")
	}
	for _, place := range places {
		if slices.Contains(pending, place) || slices.Contains(messagesOnly, place) && kind != "messages" && kind != "logs" {
			return place
		}
	}
	return ""
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, folder := range code {
		files = append(files, walk(t, filepath.Join(root, folder), ".go")...)
	}
	// This package contains all the words.
	return slices.DeleteFunc(files, func(file string) bool { return path.Dir(file) == "test/words" })
}

func markdown(t *testing.T) []string {
	t.Helper()
	return walk(t, root, ".md")
}

// walk lists the files below a folder with an extension, as paths below the root. It leaves out built and hidden files, and data of tests.
func walk(t *testing.T, folder, extension string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "dist") {
			return filepath.SkipDir
		}
		if !entry.IsDir() && filepath.Ext(base) == extension {
			relative, err := filepath.Rel(root, name)
			files = append(files, filepath.ToSlash(relative))
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func matching(t *testing.T, patterns []string) []string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range found {
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				continue
			}
			relative, err := filepath.Rel(root, name)
			require.NoError(t, err)
			files = append(files, filepath.ToSlash(relative))
		}
	}
	require.NotEmpty(t, files)
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	return string(content)
}
