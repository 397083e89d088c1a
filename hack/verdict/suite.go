//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"gotest.tools/gotestsum/testjson"
)

// suite is one command whose tests run again if the rules allow it.
type suite struct {
	name, dir, workDir, format string
	// out receives the events in the format, log the messages of the suite.
	out, log io.Writer
	// command is the command line of all tests, or of one test of a package.
	command func(pkg, test string) []string

	trouble trouble
}

func goTestCommand(flags, packages []string, pkg, test string) []string {
	args := append([]string{"go", "test", "-json"}, flags...)
	if test == "" {
		return append(args, packages...)
	}
	return append(args, "-count", "1", "-run", only(test), pkg)
}

func programCommand(pkg string, program []string, test string) []string {
	args := append([]string{"go", "tool", "test2json", "-t", "-p", pkg}, program...)
	args = append(args, "-test.v=test2json")
	if test == "" {
		return args
	}
	return append(args, "-test.run", only(test))
}

func only(test string) string { return "^" + regexp.QuoteMeta(test) + "$" }

// run fails if tests failed, and a retry did not help or was not allowed.
func (s *suite) run(ctx context.Context) error {
	s.trouble = newTrouble()
	stream, err := os.OpenFile(filepath.Join(s.dir, s.name+".json"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	defer func() { _ = stream.Close() }()
	first, err := s.scan(ctx, s.command("", ""), stream)
	if first == nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.printf("%s: %s in %.1fs\n", s.name, newTally(first), first.Elapsed().Seconds())
	if err != nil && ctx.Err() == nil {
		err = s.retry(ctx, first, stream, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// scan runs a command and prints its events. It returns the command's error.
func (s *suite) scan(ctx context.Context, args []string, stream io.Writer) (*testjson.Execution, error) {
	cmd := command(ctx, args)
	cmd.Dir, cmd.Stderr = s.workDir, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	formatter := testjson.NewEventFormatter(s.out, s.format, testjson.FormatOptions{HideEmptyPackages: true, Icons: "text"})
	handler := &events{stream: stream, out: s.log, formatter: formatter, trouble: s.trouble, builds: map[string][]string{}}
	execution, scanErr := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: stdout, Handler: handler, IgnoreNonJSONOutputLines: true})
	if scanErr != nil {
		// The command must not block because its reader is gone.
		_, _ = io.Copy(io.Discard, stdout)
	}
	return execution, errors.Join(wait(ctx, cmd), scanErr)
}

// retry runs all failed tests again, or none. It returns failure if one must not run again, or fails again.
func (s *suite) retry(ctx context.Context, first *testjson.Execution, stream io.Writer, failure error) error {
	failed, why := s.candidates(first)
	if why == "" && len(failed) > 0 {
		names := make([]string, 0, len(failed))
		for _, test := range failed {
			names = append(names, test.Test.Name()+" "+test.Package)
		}
		enough, err := reserve(s.dir, names)
		if err != nil {
			return errors.Join(failure, err)
		}
		if !enough {
			why = fmt.Sprintf("%d failed, and at most %d tests are retried in a run", len(failed), retryLimit)
		}
	}
	if why != "" || len(failed) == 0 {
		if why != "" {
			s.printf("%s: no retry: %s\n", s.name, why)
		}
		return failure
	}
	for _, test := range failed {
		if err := s.again(ctx, test, stream); err != nil {
			return errors.Join(failure, err)
		}
	}
	return nil
}

// again runs one failed test alone. A test that is skipped or missing has not passed.
func (s *suite) again(ctx context.Context, test testjson.TestCase, stream io.Writer) error {
	name := test.Test.Name()
	s.printf("%s: retry: %s of %s failed and runs once more, alone\n", s.name, name, test.Package)
	second, err := s.scan(ctx, s.command(test.Package, name), stream)
	if err != nil {
		return fmt.Errorf("%s failed again: %w", name, err)
	}
	passed := slices.ContainsFunc(second.Package(test.Package).Passed, func(t testjson.TestCase) bool { return t.Test == test.Test })
	if !passed {
		return fmt.Errorf("%s did not run again", name)
	}
	line := "FLAKY " + name + " " + test.Package
	s.printf("%s\n", line)
	return appendLine(filepath.Join(s.dir, flakyFile), line)
}

// candidates are the failed top-level tests, or the reason why none of them may run again.
func (s *suite) candidates(e *testjson.Execution) (failed []testjson.TestCase, why string) {
	for _, name := range e.Packages() {
		pkg := e.Package(name)
		if pkg.TestMainFailed() {
			return nil, name + " failed outside of a test"
		}
		for _, test := range pkg.Failed {
			if test.Test.IsSubTest() {
				continue
			}
			if refusal := s.trouble.refusal(test, outputOf(pkg, test)); refusal != "" {
				return nil, test.Test.Name() + ": " + refusal
			}
			failed = append(failed, test)
		}
	}
	return failed, ""
}

// outputOf is the output of a test and its subtests.
func outputOf(pkg *testjson.Package, test testjson.TestCase) []string {
	lines := slices.Clone(pkg.OutputLines(test))
	for _, sub := range pkg.Failed {
		if root, _ := sub.Test.Split(); sub.Test.IsSubTest() && root == test.Test.Name() {
			lines = append(lines, pkg.OutputLines(sub)...)
		}
	}
	return lines
}

func (s *suite) printf(format string, args ...any) { _, _ = fmt.Fprintf(s.log, format, args...) }
