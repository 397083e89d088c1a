package pattern

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
)

// textsPerPattern is the number of texts that every generated pattern is matched against.
const textsPerPattern = 20

// setting is a number in the environment, for hack/fuzz.sh.
func setting(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	require.NoError(t, err, name)
	return n
}

// cases is the number of cases of a random test: fewer if each takes longer, or as many as hack/fuzz.sh requests.
func cases(t testing.TB) int {
	t.Helper()
	if testing.Short() {
		return int(setting(t, "PATTERN_CASES", 2000))
	}
	return int(setting(t, "PATTERN_CASES", 20000))
}

// specimen is a table with the answers of its pattern's own library.
type specimen struct {
	pattern string
	dialect Dialect
	table   *Table
	// occurs returns the answer of the library; the second result is false if that took too long.
	occurs func(text string) (bool, bool)
}

// specimenOf returns a specimen, or the reason why there is none. The search of regexp2 misses matches, for example of `\D+ab|\w_` in "
// 1_"; anchored at the beginning, it backtracks through every start.
func specimenOf(pattern string, dialect Dialect) (*specimen, error) {
	s := &specimen{pattern: pattern, dialect: dialect}
	if dialect == RE2 {
		reference, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		s.occurs = func(text string) (bool, bool) { return reference.MatchString(text), true }
	} else {
		reference, err := regexp2.Compile(`\A(?s:.*?)(?:` + pattern + `)`)
		if err != nil {
			return nil, err
		}
		reference.MatchTimeout = 20 * time.Second // a busy machine takes long for work of milliseconds
		s.occurs = func(text string) (bool, bool) {
			occurs, err := reference.MatchString(text)
			return occurs, err == nil
		}
	}
	table, err := Compile(pattern, dialect)
	s.table = table
	return s, err
}

// sample is a set of rules of random patterns, and random processes with the answers of the patterns' own libraries.
type sample struct {
	rules     Rules
	patterns  []string
	processes []process
}

type process struct {
	argv     []string
	exe      string
	selected bool
}

// sampler makes samples, and counts.
type sampler struct {
	generator
	cases, patterns, occurred, slow int
	refused                         map[string]int
}

func newSampler(seed uint64) *sampler {
	return &sampler{generator: generator{Rand: rand.New(rand.NewPCG(seed, 1))}, refused: map[string]int{}}
}

// atomicSyntax matches the syntax of atomic groups.
var atomicSyntax = regexp.MustCompile(`\(\?>|[*+?}]\+`)

// specimen returns a random pattern that can be compiled.
func (s *sampler) specimen(t *testing.T) *specimen {
	t.Helper()
	for {
		s.dialect = Perl
		if s.IntN(4) == 0 {
			s.dialect = RE2
		}
		pattern := s.alternatives(3)
		made, err := specimenOf(pattern, s.dialect)
		if err == nil {
			s.patterns++
			return made
		}
		if errors.Is(err, atomicGroup) {
			require.Regexp(t, atomicSyntax, pattern, "the pattern has no atomic group")
		}
		reason, _, _ := strings.Cut(err.Error(), ":")
		reason, _, _ = strings.Cut(reason, " in `")
		s.refused[reason]++
	}
}

// sample returns rules of one to three patterns. It fails the test if a table and the pattern's library answer differently.
func (s *sampler) sample(t *testing.T) sample {
	t.Helper()
	out := sample{rules: Rules{Target: Target(s.IntN(int(targets)))}}
	tables := make([]*specimen, 1+s.IntN(3))
	for i := range tables {
		tables[i] = s.specimen(t)
		out.patterns = append(out.patterns, fmt.Sprintf("%d %q", tables[i].dialect, tables[i].pattern))
		if i == 0 && s.IntN(8) > 0 {
			out.rules.Include = tables[i].table
		} else {
			out.rules.Excludes = append(out.rules.Excludes, tables[i].table)
		}
	}
	for range textsPerPattern {
		text := s.text()
		selected, known := true, true
		for _, specimen := range tables {
			occurs, inTime := specimen.occurs(text)
			if !inTime {
				s.slow++
				known = false
				continue
			}
			s.cases++
			if occurs {
				s.occurred++
			}
			require.Equal(t, occurs, specimen.table.Match(text), "dialect %d, pattern %q, text %q", specimen.dialect, specimen.pattern, text)
			selected = selected && occurs == (specimen.table == out.rules.Include)
		}
		if known {
			out.processes = append(out.processes, s.process(out.rules.Target, text, selected))
		}
	}
	return out
}

// process returns a process with the text at the place that rules with this target read.
func (s *sampler) process(target Target, text string, selected bool) process {
	p := process{argv: strings.Split(text, " "), exe: "/usr/bin/python3", selected: selected}
	switch {
	case target == Executable:
		p.argv, p.exe = []string{"a"}, text
	case target == Argv0:
		p.argv = []string{text, "b"}
	case text == "" && s.IntN(2) == 0:
		p.argv = nil
	}
	return p
}

// TestCompile_RandomPatterns_MatchAsTheirLibraries compares tables with the patterns' libraries, and the C function with both.
// PATTERN_CASES and PATTERN_SEED select the number of cases and the seed.
func TestCompile_RandomPatterns_MatchAsTheirLibraries(t *testing.T) {
	count, seed := cases(t), setting(t, "PATTERN_SEED", 1)
	t.Logf("PATTERN_SEED=%d", seed)
	s, natives := newSampler(seed), startNatives(t)
	for s.cases < count {
		sample := s.sample(t)
		for _, p := range sample.processes {
			require.Equal(t, p.selected, sample.rules.Match(p.argv, p.exe), "%v %q", sample.patterns, p)
		}
		for _, native := range natives {
			native.expect(sample.rules, sample.processes, fmt.Sprint(sample.patterns))
		}
	}
	for _, native := range natives {
		native.finish()
	}
	t.Logf("%d cases, %d patterns, %d occurred, %d slow; not compiled: %v", s.cases, s.patterns, s.occurred, s.slow, s.refused)
	require.Less(t, s.slow, s.cases/100+10)
	require.Greater(t, s.occurred, s.cases/10)
}
