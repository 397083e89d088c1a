package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// constants reads constants of the repository's packages, including unexported ones.
type constants struct {
	root string
	fset *token.FileSet
	// times is package time, reduced to the constants in use.
	times    *types.Package
	packages map[string]*checkedPackage
}

// checkedPackage is a package that was checked without the bodies of its functions.
type checkedPackage struct {
	scope  *types.Scope
	files  []*ast.File
	values map[ast.Expr]types.TypeAndValue
}

func newConstants(root string) *constants {
	return &constants{root: root, fset: token.NewFileSet(), times: units(), packages: map[string]*checkedPackage{}}
}

// units contains the durations of package time, whose source may be missing when this runs.
func units() *types.Package {
	times := types.NewPackage("time", "time")
	duration := types.NewNamed(types.NewTypeName(token.NoPos, times, "Duration", nil), types.Typ[types.Int64], nil)
	for name, unit := range map[string]time.Duration{
		"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
	} {
		times.Scope().Insert(types.NewConst(token.NoPos, times, name, duration, constant.MakeInt64(int64(unit))))
	}
	times.Scope().Insert(duration.Obj())
	times.MarkComplete()
	return times
}

// Import returns an empty package for a package that no constant here uses.
func (c *constants) Import(path string) (*types.Package, error) {
	if path == "time" {
		return c.times, nil
	}
	empty := types.NewPackage(path, filepath.Base(path))
	empty.MarkComplete()
	return empty, nil
}

// in returns the package of a folder below the root. Declarations of other packages are unknown.
func (c *constants) in(folder string) (*checkedPackage, error) {
	if known := c.packages[folder]; known != nil {
		return known, nil
	}
	matches, err := filepath.Glob(filepath.Join(c.root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, file := range matches {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(c.fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, parsed)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w", folder, fs.ErrNotExist)
	}
	values := map[ast.Expr]types.TypeAndValue{}
	checker := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}}
	of, _ := checker.Check(folder, c.fset, files, &types.Info{Types: values}) // the value of an unchecked expression is nil
	c.packages[folder] = &checkedPackage{of.Scope(), files, values}
	return c.packages[folder], nil
}

// find returns the value of a constant, or of "VARIABLE.FIELD" if a variable is declared with its fields.
func (p *checkedPackage) find(name string) (value constant.Value, of types.Type) {
	variable, field, inside := strings.Cut(name, ".")
	if !inside {
		if found, ok := p.scope.Lookup(name).(*types.Const); ok {
			return found.Val(), found.Type()
		}
		return nil, nil
	}
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && spec.Names[0].Name == variable {
				ast.Inspect(spec.Values[0], func(n ast.Node) bool {
					if pair, ok := n.(*ast.KeyValueExpr); ok && types.ExprString(pair.Key) == field {
						value, of = p.values[pair.Value].Value, p.values[pair.Value].Type
					}
					return true
				})
			}
			return true
		})
	}
	return value, of
}

// value returns a constant "FOLDER.NAME" or "FOLDER.VARIABLE.FIELD" as a page shows it. bytes means that a number counts bytes.
func (c *constants) value(name string, bytes bool) (string, error) {
	folder, rest, _ := strings.Cut(name, ".")
	declared, err := c.in(folder)
	if err != nil {
		return "", err
	}
	value, of := declared.find(rest)
	if value == nil {
		return "", fmt.Errorf("%s has no constant %s", folder, rest)
	}
	number, exact := constant.Int64Val(constant.ToInt(value))
	switch {
	case !exact:
		return "", fmt.Errorf("constant %s is no integer: %s", name, value)
	case of.String() == "time.Duration":
		return durationText(time.Duration(number)), nil
	case bytes:
		return bytesText(number), nil
	}
	return countText(number), nil
}

// durationText formats a duration, such as "30 s", "10 min" or "1 h".
func durationText(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= unit.size && d%unit.size == 0 {
			return fmt.Sprintf("%d %s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// bytesText formats a size, such as "16 MiB".
func bytesText(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(1) << (10 * (3 - i)); n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	return countText(n) + " bytes"
}

// countText formats a number with commas between thousands.
func countText(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
