package walls

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// A struct with more fields or methods has more than one responsibility.
const (
	maxFields  = 8
	maxMethods = 10
)

// Size is the size of a struct.
type Size struct{ Fields, Methods int }

// fits reports whether a struct may have that size.
func (s Size) fits() bool { return s.Fields <= maxFields && s.Methods <= maxMethods }

// structs measures the structs of the package in a folder, its tests left out. An embedded type is one field.
func structs(folder string) (map[string]Size, error) {
	sizes := map[string]Size{}
	methods := map[string]int{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no Go files in %s: %w", folder, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			switch d := declaration.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if name, fields, ok := structOf(spec); ok {
						sizes[name] = Size{Fields: fields}
					}
				}
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[receiver(d.Recv.List[0].Type)]++
				}
			}
		}
	}
	for name, size := range sizes {
		size.Methods = methods[name]
		sizes[name] = size
	}
	return sizes, nil
}

// structOf returns the name of a struct type and the number of its fields; false for another type.
func structOf(spec ast.Spec) (name string, fields int, ok bool) {
	named, ok := spec.(*ast.TypeSpec)
	if !ok {
		return "", 0, false
	}
	found, ok := named.Type.(*ast.StructType)
	if !ok {
		return "", 0, false
	}
	for _, field := range found.Fields.List {
		fields += max(1, len(field.Names))
	}
	return named.Name.Name, fields, true
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch t := of.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	default:
		return ""
	}
}
