// Package seam counts how many files know an extension or a family of devices by name: a seam is real if few do.
package seam

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the repository.
const root = "../.."

// subject is an extension or a family, as identifiers name it.
type subject struct {
	name string
	// identifiers match the words of identifiers, in lower case.
	identifiers *regexp.Regexp
	// own lists its folders, with all their subfolders, and its files in folders of others.
	own []string
	// most is the maximum number of other files with such an identifier; goal is the number that the design aims at.
	most, goal int
}

// ofCounters are the folders and files of recordings of a GPU's counters, which use the profiler, metrics options and perfmon devices.
var ofCounters = []string{
	"pkg/profiler/counters", "pkg/profiler/collector", "pkg/plugin/profiler/counting", "pkg/plugin/profiler/counted.go",
	"pkg/plugin/profiler/store/collector.go", "pkg/claim/counters.go", "pkg/gpu/counters.go", "pkg/profiler/nsight/counters.go",
}

// subjects are the counted ones. Each change that lowers a number also lowers its most.
var subjects = []subject{
	{"MPS", regexp.MustCompile(`\bmps`), []string{"pkg/plugin/mps", "pkg/mpsd", "cmd/prism-mpsd"}, 15, 15},
	{"profiler", regexp.MustCompile(`\bprofil(er|ing|ed)\b|\bprofile (extension|options)\b|\bkind profile\b`), []string{
		"pkg/profiler", "pkg/plugin/profiler", "pkg/controller/reports", "pkg/cli/profile", "cmd/prism-tool", "api/profiles",
	}, 7, 12},
	{"metrics of claims", regexp.MustCompile(`\bgpu metrics|\bclaimmetrics|\bmetrics extension|\bkind metrics`), []string{
		"pkg/plugin/claimmetrics", "pkg/exporter", "cmd/prism-exporter",
	}, 3, 8},
	{"recording by hand", regexp.MustCompile(`\b(manual|by hand|armed|disarmed|arm|disarm)\b`), []string{
		"pkg/profiler/session", "pkg/plugin/profiler/sessions", "pkg/controller/commands", "pkg/cli/profile/record",
		"pkg/plugin/profiler/byhand.go", "pkg/plugin/profiler/plan/byhand.go", "pkg/plugin/profiler/store/byhand.go", "pkg/profiler/tool/manual.go",
		"pkg/cli/profile/commands.go", "pkg/cli/profile/sessions.go", "pkg/cli/reports/sessions.go",
	}, 17, 6},
	{"perfmon", regexp.MustCompile(`\bperfmon\b`), []string{
		"pkg/gpu/additional.go", "pkg/gpu/perfmon.go", "pkg/claim/additional.go", "pkg/claim/perfmon.go", "pkg/plugin/publish/perfmon.go", "pkg/plugin/cdi/perfmon.go",
	}, 5, 6},
	{"counters of GPUs", regexp.MustCompile(`\bcounter (options|gpu)\b|\bkind counters\b|\bcounting\b|\bcollector (dir|version|folder)\b`), nil, 9, 6},
}

// TestSeam_FilesThatNameIt_NoMore prints the table, and fails if a number grows.
func TestSeam_FilesThatNameIt_NoMore(t *testing.T) {
	t.Parallel()
	found := make([]map[string]bool, len(subjects))
	for i := range found {
		found[i] = map[string]bool{}
	}
	for _, folder := range []string{"pkg", "cmd"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
			words, err := identifiers(path)
			for i, s := range subjects {
				if s.identifiers.MatchString(words) && !slices.ContainsFunc(append(slices.Clone(s.own), ofCounters...), func(own string) bool { return name == own || strings.HasPrefix(name, own+"/") }) {
					found[i][name] = true
				}
			}
			return err
		}))
	}
	fmt.Printf("%-20s %6s %5s %5s\n", "named elsewhere", "files", "most", "goal")
	for i, s := range subjects {
		fmt.Printf("%-20s %6d %5d %5d\n", s.name, len(found[i]), s.most, s.goal)
		if !assert.LessOrEqual(t, len(found[i]), s.most, "%s is named by more files than before", s.name) {
			t.Log(strings.Join(slices.Sorted(maps.Keys(found[i])), "\n"))
		}
	}
}

var boundary = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])`)

// identifiers returns the identifiers of a file, each as words in lower case on a separate line: "MPSUse" is "mps use".
func identifiers(path string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			text.WriteString(strings.ToLower(boundary.ReplaceAllString(id.Name, "$1$3 $2$4")) + "\n")
		}
		return true
	})
	return text.String(), nil
}
