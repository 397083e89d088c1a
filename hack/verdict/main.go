//go:build linux

// Package main runs the steps of CI and the tests of a step, and decides whether they passed. gotestsum's testjson package reads and prints
// the events of tests. Its --rerun-fails does not fit: it counts within one command, while a run of CI consists of many, and it cannot
// exclude a leak or a package.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const usage = `Usage:
  verdict steps [--beside] NAME...                            run "make NAME" of each, print a report
  verdict test --name N [--dir D] -- [FLAGS] -- PACKAGES      run "go test FLAGS PACKAGES"
  verdict binary --name N --package P [--dir D] [--format F] -- PROGRAM [FLAGS]
                                                              run a compiled test program of package P in D
  verdict flaky --at YYYY-MM-DD FILE                          check the list of flaky tests
test and binary run a failed test once more if that is allowed. VERDICT_DIR is the folder of a run, which has the events of its tests and
the count of its retries; without it the command is a run of its own.
`

func main() {
	// A step ends as a whole: its processes are stopped before this one exits.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "verdict: %v\n", err)
		os.Exit(exitCode(err))
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("a command is required\n%s", usage)
	}
	switch args[0] {
	case "steps":
		return stepsCommand(ctx, args[1:])
	case "test", "binary":
		return testCommand(ctx, args[0], args[1:])
	case "flaky":
		return flakyCommand(args[1:])
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

// exitCode returns the exit code of the failed process in err, or 1.
func exitCode(err error) int {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() > 0 {
		return failed.ExitCode()
	}
	return 1
}

func stepsCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("steps", flag.ContinueOnError)
	beside := flags.Bool("beside", false, "run lifecycle beside e2e, at the lowest CPU weight")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return withFolder(func(dir string) error {
		r := &runner{dir: dir, out: os.Stdout, command: makeTarget}
		return r.run(ctx, flags.Args(), *beside)
	})
}

func testCommand(ctx context.Context, kind string, args []string) error {
	flags := flag.NewFlagSet(kind, flag.ContinueOnError)
	s := suite{out: os.Stdout, log: os.Stdout, format: "pkgname-and-test-fails"}
	flags.StringVar(&s.name, "name", kind, "name of the tests in the report")
	pkg := flags.String("package", "", "import path of the package, for binary")
	folder := flags.String("dir", "", "working directory of the command")
	format := flags.String("format", "standard-verbose", "gotestsum's name of a format, for binary; after standard-json, other lines go to standard error")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rest := flags.Args()
	s.workDir = *folder
	if kind == "binary" {
		if *pkg == "" || len(rest) == 0 {
			return errors.New("binary: --package and a program are required")
		}
		s.format = *format
		if s.format == "standard-json" {
			s.log = os.Stderr
		}
		s.command = func(_, test string) []string { return programCommand(*pkg, rest, test) }
	} else {
		split := slices.Index(rest, "--")
		if split < 0 || split+1 == len(rest) {
			return errors.New(`test: packages are required after a second "--"`)
		}
		s.command = func(pkg, test string) []string { return goTestCommand(rest[:split], rest[split+1:], pkg, test) }
	}
	return withFolder(func(dir string) error {
		s.dir = dir
		return s.run(ctx)
	})
}

func flakyCommand(args []string) error {
	flags := flag.NewFlagSet("flaky", flag.ContinueOnError)
	at := flags.String("at", "", "date of the last commit, YYYY-MM-DD")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("flaky: one FILE is required")
	}
	date, err := time.Parse(time.DateOnly, *at)
	if err != nil {
		return fmt.Errorf("flaky: --at must be a date YYYY-MM-DD, got %s", strconv.Quote(*at))
	}
	text, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("reading the list of flaky tests: %w", err)
	}
	if err := checkFlaky(string(text), date); err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	return nil
}

// withFolder calls f with the folder of the run: VERDICT_DIR, or a temporary one that processes of f find in that variable.
func withFolder(f func(dir string) error) error {
	if dir := os.Getenv("VERDICT_DIR"); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the folder of the run: %w", err)
		}
		return f(dir)
	}
	dir, err := os.MkdirTemp("", "verdict-")
	if err != nil {
		return fmt.Errorf("making the folder of the run: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Setenv("VERDICT_DIR", dir); err != nil {
		return err
	}
	return f(dir)
}
