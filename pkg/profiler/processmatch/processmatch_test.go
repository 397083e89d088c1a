package processmatch_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/profiler/processmatch"
)

// TestRules_Config_SelectsProcesses: default excludes apply unless the configuration disables them.
func TestRules_Config_SelectsProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match   v1alpha1.ProcessMatch
		yes, no [][]string
	}{
		"default": {v1alpha1.ProcessMatch{}, [][]string{{"/usr/bin/python3", "train.py"}}, [][]string{{"/bin/bash", "-c", "python3 train.py"}}},
		"regex": {
			v1alpha1.ProcessMatch{Regex: new(`^/usr/bin/python3 (?!.*pip)`), Exclude: []string{"eval"}},
			[][]string{{"/usr/bin/python3", "train.py"}}, [][]string{{"/usr/bin/python3", "-m", "pip"}, {"/usr/bin/python3", "eval.py"}},
		},
		"shells too": {v1alpha1.ProcessMatch{UseDefaultExcludes: new(false)}, [][]string{{"/bin/bash", "-c", "x"}}, nil},
		"executable": {
			v1alpha1.ProcessMatch{Regex: new(`python3$`), Target: new(v1alpha1.TargetExecutable)}, [][]string{{"/usr/bin/python3", "x"}}, [][]string{{"/usr/bin/perl", "python3"}},
		},
		"RE2": {v1alpha1.ProcessMatch{Regex: new(`train\.py$`), Dialect: new(v1alpha1.DialectRE2)}, [][]string{{"/a", "train.py"}}, [][]string{{"/a", "trainXpy"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := v1alpha1.ProfilerConfig{Match: &c.match}
			config.Default()
			selects, err := processmatch.Rules(config.Match, pattern.Compile)
			require.NoError(t, err)
			for _, argv := range c.yes {
				assert.True(t, selects.Match(argv, argv[0]), argv)
			}
			for _, argv := range c.no {
				assert.False(t, selects.Match(argv, argv[0]), argv)
			}
		})
	}
}

// TestRules_Pattern_NamedInError: a user finds the field with the pattern that does not compile.
func TestRules_Pattern_NamedInError(t *testing.T) {
	t.Parallel()
	for field, match := range map[string]v1alpha1.ProcessMatch{
		"match.regex: ":      {Regex: new("(")},
		"match.exclude[1]: ": {Exclude: []string{"a", "("}},
	} {
		config := v1alpha1.ProfilerConfig{Match: &match}
		config.Default()
		_, err := processmatch.Rules(config.Match, pattern.Compile)
		assert.ErrorContains(t, err, field)
	}
}
