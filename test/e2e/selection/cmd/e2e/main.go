// The e2e command helps hack/e2e.sh: it selects the tests of a run, and shows and sums up what test2json says of them.
//
//	git diff --name-only BASE | e2e select --tree HASH    a line per group: its name, a tab, a pattern of its tests
//	go tool test2json … | e2e show --ran FILE             the output of the tests as text; names of tests that ran are appended to the file
//	e2e summary GROUP.json…                               the slowest tests
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/test/e2e/selection"
)

// slowest is the number of tests in a summary.
const slowest = 15

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: e2e select|show|summary")
	}
	switch command, rest := args[0], args[1:]; command {
	case "select":
		return choose(rest, in, out)
	case "show":
		return show(rest, in, out)
	case "summary":
		return summary(rest, out)
	default:
		return fmt.Errorf("unknown command %q; supported values: select, show, summary", command)
	}
}

// choose prints the tests of each group, and before that, as a comment, how they were selected.
func choose(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("select", flag.ExitOnError)
	share := flags.String("share", "", "the third that runs, as i/3, or areas for those that changed alone; empty: the third of --tree")
	tree := flags.String("tree", "", "hash of the tree of the commit")
	var r selection.Request
	flags.BoolVar(&r.Full, "full", false, "every test")
	flags.BoolVar(&r.Unknown, "unknown", false, "there is nothing to compare with")
	_ = flags.Parse(args)
	var err error
	switch {
	case r.Full:
	case *share != "":
		// An explicit share is exactly the share that runs.
		r.Unknown = false
		r.Third, err = selection.ParseShare(*share)
	default:
		r.Third, err = selection.ShareOf(*tree)
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		r.Changed = append(r.Changed, lines.Text())
	}
	tests := selection.Select(r)
	fmt.Fprintf(out, "# %s: %d of %d tests\n", describe(r), len(tests), len(selection.Tests))
	for _, group := range selection.Groups(tests) {
		fmt.Fprintf(out, "%s\t%s\n", group[0].Group, selection.Pattern(group))
	}
	return nil
}

func describe(r selection.Request) string {
	areas := selection.ChangedAreas(r.Changed)
	changed := cmp.Or(strings.Join(areas, ", "), "none")
	switch {
	case r.Full:
		return "all"
	case r.Third == selection.OnlyAreas:
		return fmt.Sprintf("areas that changed (%s)", changed)
	case r.Unknown:
		return fmt.Sprintf("core, share %d/%d and the next one, because there is no upstream branch to compare with", r.Third, selection.Thirds)
	case len(areas) == 0:
		return fmt.Sprintf("core, share %d/%d", r.Third, selection.Thirds)
	default:
		return fmt.Sprintf("core, share %d/%d, and areas that changed (%s)", r.Third, selection.Thirds, changed)
	}
}

func show(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("show", flag.ExitOnError)
	ran := flags.String("ran", "", "file to which the names of the tests are appended that ran; a test that was skipped did not")
	_ = flags.Parse(args)
	results, err := selection.Show(in, out)
	if err != nil || *ran == "" {
		return err
	}
	// One write: groups append to the file side by side.
	var names strings.Builder
	for _, r := range results {
		if r.Outcome != "skip" {
			names.WriteString(r.Test + "\n")
		}
	}
	file, err := os.OpenFile(*ran, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(names.String())
	return errors.Join(err, file.Close())
}

// summary prints the slowest tests of all files, whose names say the groups.
func summary(files []string, out io.Writer) error {
	var all []selection.Result
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		results, err := selection.Show(file, io.Discard)
		file.Close()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		group := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".json"), "e2e-")
		for _, r := range results {
			r.Group = group
			all = append(all, r)
		}
	}
	for _, r := range selection.Slowest(all, slowest) {
		fmt.Fprintf(out, "e2e: test=%s group=%s result=%s seconds=%.1f\n", r.Test, r.Group, r.Outcome, r.Seconds)
	}
	return nil
}
