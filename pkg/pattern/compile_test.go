package pattern

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func compiled(t testing.TB, text string, dialect Dialect) *Table {
	t.Helper()
	table, err := Compile(text, dialect)
	require.NoError(t, err, text)
	return table
}

func TestCompile_PatternsOfUsers_MatchTheirProcesses(t *testing.T) {
	const python = "/usr/bin/python3 /srv/train.py --epochs 3"
	tests := []struct {
		pattern  string
		dialect  Dialect
		match    []string
		mismatch []string
	}{
		{`^(?!.*nsys( |$)).*\btrain\b.*$`, Perl, []string{python, "train"}, []string{"nsys profile " + python, "nsys train", "pretrained", ""}},
		{
			`^(?!/bin/)(?!/sbin/)(?!/usr/bin/)(?!/usr/sbin/)(?!.*nsys( | $))(?!.*cat( | $)).*$`, Perl,
			[]string{"python3 train.py", "", "nsys"},
			[]string{python, "/bin/sh", "nsys profile", "cat /etc/passwd"},
		},
		{`^/usr/bin/python3 /srv/.*$`, Perl, []string{python, python + "\n"}, []string{" " + python, "/usr/bin/python3", python + "\nx"}},
		{`(?i)\bTRAIN[\w.]*\s+(?:-\w+\s+)*\S*--ep`, Perl, []string{python, "train -x -y --ep"}, []string{"train--ep", "xtrain --ep"}},
		{`^(?=.*vllm)(?=.*serve)(?!.*--help).*$`, Perl, []string{"serve vllm"}, []string{"serve", "vllm serve --help"}},
		{`a++b`, Perl, []string{"xaab"}, []string{"aa"}},
		{`a++ab`, Perl, nil, []string{"aaab"}},
		{`x(?>ab|a)`, Perl, []string{"xa"}, []string{"ab"}},
		{`^(?(?=a)ab|.c)$`, Perl, []string{"ab", "bc"}, []string{"ac", "a"}},
		{`^é\W日$`, Perl, []string{"é-日", "é\xff日"}, []string{"é\xe2\x82日", "éé日"}},
		{`((()*ſ)(in)*)`, Perl, []string{"ſ", "inſ"}, []string{"in", ""}},
		{`(?:(?=a)|(?=b)|)*b`, Perl, []string{"b", "ab"}, []string{"a", ""}},
		{`\Gb|c\Z`, Perl, []string{"ba", "ac\n"}, []string{"ab", "ca"}},
		{`python.*train\.py`, RE2, []string{python}, []string{"python3 train_py"}},
		{`(?i)^[[:alpha:]]+\b -k$`, RE2, []string{"LS -K", "ls -\u212a"}, []string{"ls -k\n", "lé -k"}},
		{``, RE2, []string{"", python}, nil},
		{`a{2,3}$`, RE2, []string{"aa", "baaaa"}, []string{"a", "aab"}},
	}
	for _, test := range tests {
		table := compiled(t, test.pattern, test.dialect)
		for _, text := range test.match {
			require.True(t, table.Match(text), "%q in %q", test.pattern, text)
		}
		for _, text := range test.mismatch {
			require.False(t, table.Match(text), "%q in %q", test.pattern, text)
		}
	}
}

func TestCompile_WhatNoTableExpresses_RefusedWithWhatToWrite(t *testing.T) {
	tests := []struct{ pattern, construct, instead string }{
		{`(a)\1`, "a back-reference", "write out the alternatives"},
		{`(?<n>a)\k<n>`, "a back-reference", "write out the alternatives"},
		{`(?<=a)b`, "a lookbehind", "as a part of the pattern"},
		{`a(?<!b)c`, "a lookbehind", "as a part of the pattern"},
		{`x(?=(?<=x)y)`, "a lookbehind", "as a part of the pattern"},
		{`(?>ab|a)c`, "an atomic group", "write (?:…)"},
		{`(?:ab|a)++c`, "an atomic group", "write (?:…)"},
		{`(a)(?(1)b|c)`, "a conditional on a group", "both alternatives"},
		{`(?<a>x)(?<b-a>y)`, "a balancing group", "write out the nesting"},
		{`\Xa`, `\X`, "character class"},
		{`(?r:ab)`, "(?r)", "from left to right"},
		{`a(?e:b)`, "(?e)", "without it"},
		{`^.*a.{11}b`, "more than 4,000 states", "smaller counted repetitions"},
		{`((a{1,100}){1,100}){1,100}`, "too complex", "fewer nested"},
		{"(?i)[\u0100-\U0010fffe]", "(?i) with ranges", "(?-i:…)"},
		{strings.Repeat("a", MaxPattern+1), "1025 bytes", "at most 1024 bytes"},
		{manyClasses(), "larger than 256 KiB", "fewer character classes"},
		{`a(`, "not a valid Perl regular expression", "missing closing )"},
	}
	for _, test := range tests {
		_, err := Compile(test.pattern, Perl)
		require.ErrorContains(t, err, test.construct, test.pattern)
		require.ErrorContains(t, err, test.instead, test.pattern)
	}
	_, err := Compile(`a(?=b)`, RE2)
	require.ErrorContains(t, err, "not a valid RE2 regular expression")
}

// manyClasses returns a pattern that needs a class for each of 250 characters, in each of 750 states.
func manyClasses() string {
	var b strings.Builder
	for i := range 250 {
		b.WriteRune('一' + rune(i))
	}
	return "(?:" + b.String() + `){3}\z`
}

// TestCompile_HostilePatterns_Bounded: each pattern took minutes or gigabytes without a bound.
func TestCompile_HostilePatterns_Bounded(t *testing.T) {
	many := func(before, body, after string) string {
		return before + strings.Repeat(body, (MaxPattern-len(before)-len(after))/len(body)) + after
	}
	patterns := []string{
		`(a|b)*a(a|b){20}`, `^(a|b)*a(a|b){20}b`, `(?=a.{12}b)(?!c.{12}d).`, `^(.{0,300}a){20}$`, `.{3999}`, `a{2000000000}`, `a{2000000000}(?!)`,
		`(?:){2000000000}`, `((((((?:(?=b)){1000}){1000}){1000}){1000}){1000}){1000}`, `((((((?:a?){1000}){1000}){1000}){1000}){1000}){1000}`,
		many("^", "(a|b|ab)*", "$"), many("^", "(?=.*a)", "$"), many("^", "[ab]?", "c$"),
		strings.Repeat("(?:a?", 140) + "b" + strings.Repeat(")*", 140), strings.Repeat("(?!a*|b", 120) + "b" + strings.Repeat(")", 120),
		strings.Repeat("(", 500) + strings.Repeat(")", 500), many("", `\p{L}[\p{Lu}a]`, ""), many("(?i)", "[\u0100-\U0010ffff]", ""),
		many("(?i)", `[\x{100}-\x{10fffe}]`, ""), many("", `\p{Sentence_Break=Lower}`, ""), many("", "[^\u4e00]", ""), manyClasses(),
	}
	for _, text := range patterns {
		for _, dialect := range []Dialect{Perl, RE2} {
			table, err := inTime(t, text, dialect)
			if err == nil {
				require.LessOrEqual(t, table.States(), MaxStates)
				require.LessOrEqual(t, table.size(), MaxTable)
			}
		}
	}
}

// inTime calls Compile with a deadline that only a pattern without bounds exceeds.
func inTime(t *testing.T, text string, dialect Dialect) (table *Table, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		table, err = Compile(text, dialect)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "not compiled in two minutes", "dialect %d, %.80q", dialect, text)
	}
	return table, err
}

func TestCompile_SamePattern_SameBytes(t *testing.T) {
	rules := func() []byte {
		b, err := Rules{Include: compiled(t, `^(?=.*(?:vllm|\w+é))(?!.*--help).*$`, Perl)}.Encode()
		require.NoError(t, err)
		return b
	}
	first := rules()
	for range 5 {
		require.Equal(t, first, rules())
	}
}

func TestTable_EqualStates_AreOne(t *testing.T) {
	require.Equal(t, 2, compiled(t, `.{0,9}x(?:a|b)*`, Perl).States())
	require.Equal(t, 3, compiled(t, `^(?:ab|cb)*$`, RE2).States())
	require.Equal(t, 1, compiled(t, `(?:)`, Perl).classes)
	require.Len(t, compiled(t, `[é-日]|[^é-日]`, Perl).alphabet.hi, 1, "ranges of one class are one")
}

func TestCompile_Steps_Bounded(t *testing.T) {
	p := newProgram()
	start, err := p.lowerPerl(`^.{3990}$`)
	require.NoError(t, err)
	d := p.determinizer(start)
	_, err = d.run()
	require.ErrorIs(t, err, tooComplex)
	require.Less(t, d.steps, 2*maxSteps)
}

func TestCache_SizeExceeded_DropsTheLeastRecent(t *testing.T) {
	c := NewCache(2)
	a, err := c.Compile("a", Perl)
	require.NoError(t, err)
	_, err = c.Compile("(", Perl)
	require.Error(t, err)
	again, err := c.Compile("a", Perl)
	require.NoError(t, err)
	require.Same(t, a, again)
	_, err = c.Compile("a", RE2)
	require.NoError(t, err)
	require.Len(t, c.entries, 2)
	require.NotContains(t, c.entries, cacheKey{"(", Perl})
	again, err = c.Compile("a", Perl)
	require.NoError(t, err)
	require.Same(t, a, again)
}

// TestCache_DearPattern_DelaysNoOther: a tenant's pattern that takes long to compile does not delay the claims of others.
func TestCache_DearPattern_DelaysNoOther(t *testing.T) {
	t.Parallel()
	c := NewCache(2)
	dear, done := make(chan struct{}), make(chan error)
	var compilations atomic.Int32
	c.compile = func(text string, dialect Dialect) (*Table, error) {
		compilations.Add(1)
		if text == "dear" {
			<-dear
		}
		return Compile(text, dialect)
	}
	for range 2 {
		go func() {
			_, err := c.Compile("dear", Perl)
			done <- err
		}()
	}
	require.Eventually(t, func() bool { return compilations.Load() > 0 }, time.Minute, time.Millisecond)
	other := make(chan error)
	go func() {
		_, err := c.Compile("a", Perl)
		other <- err
	}()
	select {
	case err := <-other:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("another pattern waits")
	}
	close(dear)
	require.NoError(t, errors.Join(<-done, <-done))
	require.Equal(t, int32(2), compilations.Load(), "each pattern once")
}
