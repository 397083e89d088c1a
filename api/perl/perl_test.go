package perl_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/perl"
)

// TestCheck_CommentsAndQuotedText_NoConstructs: text that is not part of the pattern is not refused.
func TestCheck_CommentsAndQuotedText_NoConstructs(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`(?#[[:alpha:]] \1)a`, `\Q[[:alpha:]]\1\E`, `[\Q[:alpha:]\E]`, `[a\Q]\v\E]`, "(?x) a # [[:alpha:]] (?P<n>\nb", "(?x: a # \\1\n)b", "((?x)a # \\1\n)", `(?i-x)a`,
		`[[:alpha]`, `[:a]`, `[a-\[b]`, `\[[:]alpha:]`, `a{1,2}`, `a{2}`, `a{x}`, `a{,}`, `(?=a)(?!b)(?<n>c)(?'m'd)(?:e)(?>f)`, `[\1]`, `\\1`, `\(?P<`, `a\`, `[a\`, `\Qa`,
		`(?i)a(?-i)b(?ms)c`, `)`, `[`, `(?#`, ``,
	} {
		require.NoError(t, perl.Check(pattern), pattern)
	}
}

// TestCheck_ConstructsAfterCommentsAndQuotedText_Refused: the pattern continues after them.
func TestCheck_ConstructsAfterCommentsAndQuotedText_Refused(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		`(?#a)[[:alpha:]]`:              "a POSIX class",
		`\Q[\E[[:alpha:]]`:              "a POSIX class",
		"(?x)# a\n[[:alpha:]]":          "a POSIX class",
		"(?x:a)#[[:alpha:]]":            "a POSIX class",
		"((?x)a)#[[:alpha:]]":           "a POSIX class",
		"(?x)((?-x)#[[:alpha:]])":       "a POSIX class",
		"(?x)[#][[:alpha:]]":            "a POSIX class",
		`[]a[:alpha:]]`:                 "a POSIX class",
		`[^]][[:alpha:]]`:               "a POSIX class",
		`[a\]b[:alpha:]]`:               "a POSIX class",
		`[a-z-[b]]`:                     "-[ in a class",
		`[\400]`:                        "an octal number",
		`a\v`:                           `\v is not supported; write [\n\x0b\f\r\x{85}\x{2028}\x{2029}]`,
		`[\v]`:                          `\v is not supported; write \n\x0b\f\r\x{85}\x{2028}\x{2029}`,
		`(?ixsx)`:                       "the flag xx",
		`(?(?<n>a)b|c)`:                 "a conditional on a group",
		strings.Repeat("(", 999) + `\1`: "a back-reference",
	} {
		assert.ErrorContains(t, perl.Check(pattern), want, pattern)
	}
}

func FuzzCheck_AnyText_Ends(f *testing.F) {
	f.Add("(?x) a # b\n[\\Q]\\E-[é]]{,3}\\")
	f.Fuzz(func(_ *testing.T, pattern string) { _ = perl.Check(pattern) })
}
