package events

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAll_EveryReason_DescribedOnce: a reason without a description would be missing in the reference.
func TestAll_EveryReason_DescribedOnce(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, name := range []string{"events.go", "table.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].IsExported() && !strings.HasPrefix(spec.Names[0].Name, "Action") {
				declared[spec.Names[0].Name] = true
			}
			return true
		})
	}
	require.NotEmpty(t, declared)
	described, objects := map[string]bool{}, map[string]bool{}
	for _, e := range All() {
		described[e.Reason] = true
		assert.False(t, objects[e.Reason+e.About], "%s is described twice", e.Reason)
		objects[e.Reason+e.About] = true
		assert.NotEmpty(t, e.Meaning, e.Reason)
		assert.Equal(t, e.Warning, e.Fix != "", "%s: a warning says what to do", e.Reason)
	}
	assert.Equal(t, declared, described)
}

// TestReasons_InCode_AreConstants: an Event with a literal reason in its call would not be in the table.
func TestReasons_InCode_AreConstants(t *testing.T) {
	t.Parallel()
	calls := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 3 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Warn" && method.Sel.Name != "Normal" {
				return true
			}
			calls++
			for _, arg := range call.Args[:2] {
				if literal, ok := arg.(*ast.BasicLit); ok {
					text, _ := strconv.Unquote(literal.Value)
					t.Errorf("%s: %s(%q, …): use a constant of pkg/events", path, method.Sel.Name, text)
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Positive(t, calls)
}
