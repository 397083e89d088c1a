package walls

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Diagram returns a Mermaid graph of the packages of the product: an arrow means that a package imports another one. It leaves out an
// import that follows from two others, so that the graph shows the layers.
func Diagram(packages []Package) string {
	imports := productImports(packages)
	var b strings.Builder
	b.WriteString("```mermaid\ngraph TD\n")
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range slices.Sorted(maps.Keys(imports[from])) {
			if !indirect(imports, from, to) {
				fmt.Fprintf(&b, "  %s --> %s\n", node(from), node(to))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// productImports returns the imports among packages of the product, by package.
func productImports(packages []Package) map[string]map[string]bool {
	imports := map[string]map[string]bool{}
	for _, p := range packages {
		name, ours := strings.CutPrefix(p.ImportPath, Module+"/")
		if !ours || !matches(product, name) {
			continue
		}
		imports[name] = map[string]bool{}
		for _, d := range p.Imports {
			if imported, ours := strings.CutPrefix(d, Module+"/"); ours {
				imports[name][imported] = true
			}
		}
	}
	return imports
}

// indirect reports whether another import of the package leads to this one too.
func indirect(imports map[string]map[string]bool, from, to string) bool {
	for other := range imports[from] {
		if other != to && reaches(imports, other, to) {
			return true
		}
	}
	return false
}

func reaches(imports map[string]map[string]bool, from, to string) bool {
	if imports[from][to] {
		return true
	}
	for next := range imports[from] {
		if reaches(imports, next, to) {
			return true
		}
	}
	return false
}

// node returns a package in the graph: its identifier, and its name without "pkg/".
func node(name string) string {
	return fmt.Sprintf("%s[%s]", strings.NewReplacer("/", "_", "-", "_").Replace(name), strings.TrimPrefix(name, "pkg/"))
}
