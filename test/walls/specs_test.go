package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSpecs_Tree_EachIsApplied checks that a test applies each manifest of demo/specs.
func TestSpecs_Tree_EachIsApplied(t *testing.T) {
	run := applied(t)
	specs := os.DirFS("../../demo/specs")
	found := 0
	require.NoError(t, fs.WalkDir(specs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found++
			assert.Truef(t, run[path], "no test applies demo/specs/%s", path)
			delete(run, path)
		}
		return err
	}))
	require.NotZero(t, found)
	for path := range run {
		assert.Failf(t, "missing spec", "a test applies demo/specs/%s, which does not exist", path)
	}
}

// applied collects the manifests that the tests on a node apply.
func applied(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../e2e/*_test.go")
	require.NoError(t, err)
	specs := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"apply", "applyPodByPod", "withValues"}, f.Sel.Name) {
				for _, argument := range call.Args {
					if literal, ok := argument.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						spec, err := strconv.Unquote(literal.Value)
						require.NoError(t, err)
						specs[spec] = true
					}
				}
			}
			return true
		})
	}
	return specs
}
