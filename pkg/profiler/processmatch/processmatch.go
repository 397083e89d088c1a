// Package processmatch selects the processes of a claim that are profiled: it turns the match of a ProfilerConfig into rules for patterns.
package processmatch

import (
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/pattern"
)

// Rules returns the rules that select the processes of a match with every default. compile compiles a pattern, usually pattern.Compile. The
// error names the field of the pattern.
func Rules(m *v1alpha1.ProcessMatch, compile func(text string, dialect pattern.Dialect) (*pattern.Table, error)) (rules pattern.Rules, err error) {
	dialect := pattern.Perl
	if *m.Dialect == v1alpha1.DialectRE2 {
		dialect = pattern.RE2
	}
	switch *m.Target {
	case v1alpha1.TargetCommandLine:
		rules.Target = pattern.CommandLine
	case v1alpha1.TargetExecutable:
		rules.Target = pattern.Executable
	case v1alpha1.TargetArgv0:
		rules.Target = pattern.Argv0
	}
	if *m.Regex != "" {
		if rules.Include, err = compile(*m.Regex, dialect); err != nil {
			return rules, fmt.Errorf("match.regex: %w", err)
		}
	}
	for i, exclude := range m.Exclude {
		table, err := compile(exclude, dialect)
		if err != nil {
			return rules, fmt.Errorf("match.exclude[%d]: %w", i, err)
		}
		rules.Excludes = append(rules.Excludes, table)
	}
	if *m.UseDefaultExcludes {
		rules.Names = v1alpha1.DefaultExcludes
	}
	return rules, nil
}
