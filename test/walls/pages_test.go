package walls

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:generate go test -run ^TestPages_Generated_MatchPackages$ . -update

var update = flag.Bool("update", false, "write the packages into docs/architecture.md and pkg/doc.go")

// TestPages_Generated_MatchPackages: the docs show the packages, imports and rules that there are.
func TestPages_Generated_MatchPackages(t *testing.T) {
	t.Parallel()
	packages := list(t)
	architecture := filepath.Join("..", "..", "docs", "architecture.md")
	text, err := os.ReadFile(architecture)
	require.NoError(t, err)
	page := string(text)
	for part, content := range map[string]string{"rooms": Rooms(packages), "plugin": Within("pkg/plugin", packages), "rules": RulesTable()} {
		begin, end := "<!-- "+part+": begin, written by go generate ./test/walls -->\n", "<!-- "+part+": end -->\n"
		before, rest, begins := strings.Cut(page, begin)
		_, after, ends := strings.Cut(rest, end)
		require.True(t, begins && ends, "%s lacks the lines %q and %q", architecture, begin, end)
		page = before + begin + content + end + after
	}
	for path, now := range map[string]string{architecture: page, filepath.Join("..", "..", "pkg", "doc.go"): Tour(packages)} {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(now), 0o600))
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, now, string(text), "run go generate ./test/walls")
	}
}

func TestTour_Package_Listed(t *testing.T) {
	t.Parallel()
	tour := Tour([]Package{
		{ImportPath: Module + "/pkg/claim", Doc: "Package claim " + strings.Repeat("plans ", 22) + "claims."},
		{ImportPath: Module + "/pkg/new", Doc: "Package new is new."},
		{ImportPath: Module + "/test/e2e", Doc: "Package e2e tests."},
	})
	assert.Contains(t, tour, "//\n// # The path of a claim\n//\n//   - claim "+strings.TrimSpace(strings.Repeat("plans ", 21))+"\n//     plans claims.\n//\n")
	assert.Contains(t, tour, "//   - new is new.\npackage pkg\n")
	assert.NotContains(t, tour, "e2e")
}

func of(name string, imports ...string) Package {
	p := Package{ImportPath: Module + "/" + name, Imports: []string{"fmt"}}
	for _, i := range imports {
		p.Imports = append(p.Imports, Module+"/"+i)
	}
	return p
}

func TestRooms_ImportThatFollows_LeftOut(t *testing.T) {
	t.Parallel()
	packages := []Package{
		of("cmd/prism-x", "pkg/plugin", "pkg/gpu"), of("pkg/plugin", "pkg/plugin/prepare", "pkg/gpu"), of("pkg/plugin/prepare", "pkg/plugin/cdi", "pkg/gpu"),
		of("pkg/plugin/cdi"), of("pkg/gpu"), of("test/e2e", "pkg/gpu"),
	}
	assert.Equal(t, "```mermaid\ngraph TD\n  cmd_prism_x[cmd/prism-x] --> pkg_plugin[plugin]\n  pkg_plugin[plugin] --> pkg_gpu[gpu]\n```\n", Rooms(packages))
	assert.Equal(t, "```mermaid\ngraph TD\n  pkg_plugin[plugin] --> pkg_plugin_prepare[plugin/prepare]\n"+
		"  pkg_plugin_prepare[plugin/prepare] --> pkg_plugin_cdi[plugin/cdi]\n```\n", Within("pkg/plugin", packages))
}

// maxRooms is the maximum number of folders at the top of pkg.
const maxRooms = 24

// TestRooms_Product_FewWithoutCircle: a folder at the top of pkg is a program, or is shared by programs, and no two of them import each other.
func TestRooms_Product_FewWithoutCircle(t *testing.T) {
	t.Parallel()
	imports := Imports(list(t), room)
	rooms := 0
	for from := range imports {
		if strings.HasPrefix(from, "pkg/") {
			rooms++
		}
		for to := range imports[from] {
			assert.False(t, leads(imports, to, from, map[string]bool{}), "%s and %s import each other", from, to)
		}
	}
	assert.LessOrEqual(t, rooms, maxRooms, "a new folder belongs into the folder of the program that needs it")
	assert.Greater(t, rooms, maxRooms/2, "the list of packages is incomplete")
}

// leads is Reaches for imports that may form a circle.
func leads(imports map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for next := range imports[from] {
		if !seen[next] && leads(imports, next, to, seen) {
			return true
		}
	}
	return false
}
