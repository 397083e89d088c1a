package pattern

import (
	"regexp"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCompile_ConstructsOfPCRE_SameMeaningOrRefused: in the dialect Perl, the table and the library that parses the pattern interpret a
// construct as Perl and PCRE do, or it is refused with a sentence. In RE2 it is interpreted as in Go.
func TestCompile_ConstructsOfPCRE_SameMeaningOrRefused(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(constructs), 200)
	for _, c := range constructs {
		table, err := Compile(c.pattern, Perl)
		if c.perl != "" {
			require.ErrorContains(t, err, c.perl, c.pattern)
			continue
		}
		require.NoError(t, err, c.pattern)
		library, err := regexp2.Compile(c.pattern)
		require.NoError(t, err, c.pattern)
		c.each(func(text string, want bool) {
			got, err := library.MatchString(text)
			require.NoError(t, err)
			assert.Equal(t, want, got, "regexp2: %s in %q", c.pattern, text)
			assert.Equal(t, want, table.Match(text), "table: %s in %q", c.pattern, text)
		})
	}
}

// TestCompile_ConstructsOfPCRE_InRE2: dialect RE2 is Go's package regexp, which interprets some constructs differently.
func TestCompile_ConstructsOfPCRE_InRE2(t *testing.T) {
	t.Parallel()
	for _, c := range constructs {
		table, err := Compile(c.pattern, RE2)
		if c.re2 == notInRE2 {
			require.Error(t, err, c.pattern)
			continue
		}
		require.NoError(t, err, c.pattern)
		library := regexp.MustCompile(c.pattern)
		differs := len(c.matches)+len(c.mismatches) == 0
		c.each(func(text string, pcre bool) {
			want := library.MatchString(text)
			assert.Equal(t, want, table.Match(text), "table: %s in %q", c.pattern, text)
			differs = differs || want != pcre
		})
		assert.Equal(t, c.re2 == otherwise, differs, c.pattern)
	}
}

// each calls a function with every text and whether PCRE2 finds the construct in it.
func (c *construct) each(of func(text string, want bool)) {
	for _, text := range c.matches {
		of(text, true)
	}
	for _, text := range c.mismatches {
		of(text, false)
	}
}
