// Package walls defines which packages of the product may import which, and generates the pages that show it: pkg/doc.go and the packages of
// docs/architecture.md.
package walls

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the module of the product.
const Module = "github.com/prism-gpu/prism"

// Package is a package in the output of `go list -json`, without tests.
type Package struct {
	ImportPath string
	// Doc is the first sentence of its documentation.
	Doc string
	// Imports are its direct imports, Deps all direct and indirect ones.
	Imports, Deps []string
}

// name returns the path of the package below the module; false for a package of another module.
func (p Package) name() (string, bool) { return strings.CutPrefix(p.ImportPath, Module+"/") }

// Breaches returns a sentence for each forbidden import, with the reason of the rule.
func Breaches(packages []Package) []string {
	var breaches []string
	for _, p := range packages {
		name, _ := p.name()
		for _, r := range rules {
			if !r.applies(name) {
				continue
			}
			for _, d := range r.forbidden(name, p) {
				breaches = append(breaches, fmt.Sprintf("%s imports %s, but %s", name, d, r.because))
			}
		}
	}
	return breaches
}

func (r rule) applies(name string) bool { return matches(r.of, name) && !matches(r.except, name) }

// forbidden lists the imports of the package that the rule forbids.
func (r rule) forbidden(name string, p Package) []string {
	var found []string
	for _, d := range p.Deps {
		imported, ours := strings.CutPrefix(d, Module+"/")
		if ours && r.ours != nil && !matches(r.ours, imported) && !strings.HasPrefix(imported, name+"/") {
			found = append(found, d)
		}
	}
	for _, d := range p.Imports {
		if slices.ContainsFunc(r.not, func(pattern string) bool { return below(pattern, d) }) {
			found = append(found, d)
		}
	}
	for _, d := range p.Deps {
		if slices.ContainsFunc(r.never, func(pattern string) bool { return below(pattern, d) }) {
			found = append(found, d)
		}
	}
	return found
}

// below reports whether an import path equals the pattern or is below it.
func below(pattern, importPath string) bool {
	if alone, only := strings.CutSuffix(pattern, "$"); only {
		return importPath == alone
	}
	return importPath == pattern || strings.HasPrefix(importPath, pattern+"/")
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if folder, all := strings.CutSuffix(pattern, "/..."); all {
			return below(folder, name)
		}
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
