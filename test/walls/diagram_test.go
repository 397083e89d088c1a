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

//go:generate go test -run ^TestDiagram_Architecture_IsWhatIsImported$ . -update

var update = flag.Bool("update", false, "write the graph of packages into docs/architecture.md")

const (
	diagramBegin = "<!-- packages: begin, written by go generate -->\n"
	diagramEnd   = "<!-- packages: end -->\n"
)

// TestDiagram_Architecture_IsWhatIsImported: the graph in the docs matches the imports that go list reports.
func TestDiagram_Architecture_IsWhatIsImported(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "architecture.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), diagramBegin)
	require.True(t, found, "the marker is missing in %s", path)
	drawn, after, found := strings.Cut(rest, diagramEnd)
	require.True(t, found, "the end marker is missing in %s", path)
	now := Diagram(list(t))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+diagramBegin+now+diagramEnd+after), 0o600))
		return
	}
	assert.Equal(t, now, drawn, "run go generate ./test/walls")
}

func TestDiagram_ImportThatFollows_LeftOut(t *testing.T) {
	t.Parallel()
	of := func(name string, imports ...string) Package {
		p := Package{ImportPath: Module + "/" + name, Imports: []string{"fmt"}}
		for _, i := range imports {
			p.Imports = append(p.Imports, Module+"/"+i)
		}
		return p
	}
	graph := Diagram([]Package{
		of("cmd/prism-x", "pkg/plugin", "pkg/gpu"), of("pkg/plugin", "pkg/prepare/gc", "pkg/gpu"), of("pkg/prepare/gc", "pkg/gpu"), of("pkg/gpu"),
		of("test/e2e", "pkg/gpu"),
	})
	assert.Equal(t, "```mermaid\ngraph TD\n  cmd_prism_x[cmd/prism-x] --> pkg_plugin[plugin]\n  pkg_plugin[plugin] --> pkg_prepare_gc[prepare/gc]\n"+
		"  pkg_prepare_gc[prepare/gc] --> pkg_gpu[gpu]\n```\n", graph)
}
