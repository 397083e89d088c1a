package walls

import (
	"fmt"
	"slices"
	"strings"
)

// The rules stand between these lines of the linter's configuration.
const (
	rulesBegin = "      # Generated from test/walls by go generate; do not edit.\n"
	rulesEnd   = "  exclusions:\n"
)

// Depguard puts the linter's rules for the walls into its configuration, and replaces the existing ones.
func Depguard(configuration string) (string, error) {
	before, rest, begins := strings.Cut(configuration, rulesBegin)
	_, after, ends := strings.Cut(rest, rulesEnd)
	if !begins || !ends {
		return "", fmt.Errorf("missing lines %q and %q in the configuration, between which the rules stand", rulesBegin, rulesEnd)
	}
	var rules strings.Builder
	rules.WriteString("      rules:\n")
	for _, w := range walls {
		w.write(&rules)
	}
	return before + rulesBegin + rules.String() + rulesEnd + after, nil
}

// write adds the wall's rules: one for the packages of the product, and one for all others. In a rule with both, the linter would only
// compare an import with the nearest of all names.
func (w wall) write(rules *strings.Builder) {
	if w.ours != nil {
		fmt.Fprintf(rules, "        %s:\n          list-mode: lax\n          files: %s\n", w.name, flow(w.files()))
		if allowed := w.allowed(); len(allowed) > 0 {
			fmt.Fprintf(rules, "          allow: %s\n", flow(allowed))
		}
		fmt.Fprintf(rules, "          deny:\n            - {pkg: %s, desc: %q}\n", Module, w.because)
	}
	if names := slices.Concat(w.named, w.deps); len(names) > 0 {
		fmt.Fprintf(rules, "        %s-names:\n          list-mode: lax\n          files: %s\n          deny:\n", w.name, flow(w.files()))
		for _, name := range names {
			fmt.Fprintf(rules, "            - {pkg: %s, desc: %q}\n", name, w.because)
		}
	}
}

// files returns the wall's packages in the linter's format for files. Programs of the test and hack folders do not belong to the product.
func (w wall) files() []string {
	var files []string
	for _, pattern := range w.of {
		files = append(files, "**/"+pattern+"/*.go")
	}
	for _, pattern := range w.except {
		files = append(files, "!**/"+pattern+"/*.go")
	}
	if slices.ContainsFunc(w.of, func(pattern string) bool { return strings.Contains(pattern, "*") }) {
		files = append(files, "!**/test/**/*.go", "!**/hack/**/*.go")
	}
	if !w.tests {
		files = append(files, "!$test")
	}
	return files
}

// allowed returns the wall's packages of the product in the linter's format: exact names, or prefixes.
func (w wall) allowed() []string {
	patterns := w.ours
	if w.tests { // an external test imports its package
		patterns = slices.Concat(patterns, w.of, []string{"test/*"})
	}
	var allowed []string
	for _, pattern := range patterns {
		name, all := strings.CutSuffix(pattern, "*")
		if !all {
			name += "$"
		}
		allowed = append(allowed, Module+"/"+name)
	}
	// The linter only finds the last entry before a path in their order: an entry below an allowed folder would hide the folder.
	return slices.DeleteFunc(allowed, func(name string) bool {
		return slices.ContainsFunc(allowed, func(folder string) bool {
			return folder != name && strings.HasSuffix(folder, "/") && strings.HasPrefix(name, folder)
		})
	})
}

// flow returns a list on one line.
func flow(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = fmt.Sprintf("%q", word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
