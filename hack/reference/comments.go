package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// comments are the doc comments of a package's types, by name of the type, and of fields, by "type.field".
type comments map[string]string

// readComments parses the Go files of a folder, except tests.
func readComments(folder string) (comments, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	found := comments{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				found.add(types)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no doc comments in %s", folder)
	}
	return found, nil
}

func (c comments) add(types *ast.GenDecl) {
	for _, spec := range types.Specs {
		named := spec.(*ast.TypeSpec)
		doc := named.Doc
		if doc == nil {
			doc = types.Doc
		}
		c[named.Name.Name] = oneLine(doc.Text())
		fields, ok := named.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				c[named.Name.Name+"."+name.Name] = oneLine(field.Doc.Text())
			}
		}
	}
}
