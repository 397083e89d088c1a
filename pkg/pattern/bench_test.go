package pattern

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// usual returns typical rules of users, without rules that are decided before the end of a command line.
func usual(b *testing.B) (Rules, []string) {
	rules := Rules{
		Include:  compiled(b, `^(?!.*nsys( |$)).*\bpython[\w.]* .*train`, Perl),
		Excludes: []*Table{compiled(b, `--dry-run`, Perl)},
		Names:    []string{"bash", "sh", "cat", "sleep"},
	}
	argv := []string{"python3", "/srv/train.py"}
	for i := 0; len(strings.Join(argv, " ")) < 4<<10; i++ {
		argv = append(argv, fmt.Sprintf("--parameter-%d=/data/shard-%d.tfrecord", i, i))
	}
	require.True(b, rules.Match(argv, "/usr/bin/python3"))
	return rules, argv
}

func BenchmarkMatch_4KiB_Go(b *testing.B) {
	rules, argv := usual(b)
	for b.Loop() {
		rules.Match(argv, "/usr/bin/python3")
	}
}

func BenchmarkMatch_4KiB_C(b *testing.B) {
	rules, argv := usual(b)
	benchmarkNative(b, rules, argv)
}

func BenchmarkMatch_ShortCommandLine_C(b *testing.B) {
	rules, argv := usual(b)
	benchmarkNative(b, rules, argv[:4])
}

func benchmarkNative(b *testing.B, rules Rules, argv []string) {
	file, err := rules.Encode()
	require.NoError(b, err)
	command := exec.Command(build(b, "gcc", "-O2"), "bench", "20000")
	command.Stdin = bytes.NewReader(record(file, []process{{argv: argv, exe: "/usr/bin/python3"}}))
	for b.Loop() {
		out, err := command.Output()
		require.NoError(b, err)
		var ns float64
		var selected int
		_, err = fmt.Sscan(string(out), &ns, &selected)
		require.NoError(b, err)
		require.Equal(b, 1, selected)
		b.ReportMetric(ns, "ns/match")
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(len(file)), "bytes/file")
		command = exec.Command(command.Path, command.Args[1:]...)
		command.Stdin = bytes.NewReader(record(file, []process{{argv: argv, exe: "/usr/bin/python3"}}))
	}
}

// BenchmarkCompile_FirstUse compiles patterns of users, and the slowest known patterns.
func BenchmarkCompile_FirstUse(b *testing.B) {
	for name, text := range map[string]string{
		"lookaheads":   `^(?!/bin/)(?!/sbin/)(?!/usr/bin/)(?!/usr/sbin/)(?!.*nsys( | $))(?!.*cat( | $)).*$`,
		"words":        `(?i)\bpython[\w.]*\s+(?:-\w+\s+)*\S*train`,
		"counted":      `(?:[a-z]{1,8} ){3,30}go`,
		"many-states":  `^.*a.{11}b`,
		"many-classes": manyClasses(),
		"many-steps":   `^.{3990}$`,
		"many-nodes":   `^(.{0,300}a){20}$`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = Compile(text, Perl)
			}
		})
	}
}
