//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// events prints and stores the events of a command.
type events struct {
	stream, out io.Writer
	formatter   testjson.EventFormatter
	trouble     trouble
	// builds is the output of the compiler, by import path. It is only printed if the build fails, because warnings of C code would hide the
	// rest.
	builds map[string][]string
}

// Event implements testjson.EventHandler.
func (h *events) Event(e testjson.TestEvent, execution *testjson.Execution) error {
	// An event without bytes was added for a test that did not finish.
	if len(e.Bytes()) > 0 {
		if _, err := fmt.Fprintf(h.stream, "%s\n", e.Bytes()); err != nil {
			return fmt.Errorf("keeping events: %w", err)
		}
	}
	h.trouble.note(e)
	if e.Action == testjson.ActionBuild {
		h.builds[e.ImportPath] = append(h.builds[e.ImportPath], e.Output)
		return nil
	}
	if e.Action == "build-fail" {
		for _, line := range h.builds[e.ImportPath] {
			if _, err := io.WriteString(h.out, line); err != nil {
				return err
			}
		}
		return nil
	}
	// If no test failed, the output of a package outside of its tests contains the reason of its failure.
	if e.PackageEvent() && e.Action == testjson.ActionFail && len(execution.Package(e.Package).Failed) == 0 {
		text := &strings.Builder{}
		if err := execution.Package(e.Package).WriteOutputTo(text, 0); err != nil {
			return err
		}
		if _, err := io.WriteString(h.out, text.String()); err != nil {
			return err
		}
	}
	return h.formatter.Format(e, execution)
}

// Err implements testjson.EventHandler: it handles a line that is not an event, from a program that prints outside of Go's test framework.
func (h *events) Err(text string) error {
	_, err := fmt.Fprintln(h.out, text)
	return err
}

// tally counts the top-level tests of executions. A test that ran again counts once, with its last result.
type tally struct {
	passed, skipped, failed int
	// broken are packages that failed outside of a test.
	broken []string
	tests  []result
}

type result struct {
	name, pkg string
	outcome   testjson.Action
	// elapsed is the duration of its longest run.
	elapsed time.Duration
	last    int
}

func newTally(executions ...*testjson.Execution) *tally {
	t := &tally{}
	for _, e := range executions {
		for _, name := range e.Packages() {
			t.add(name, e.Package(name))
		}
	}
	slices.SortFunc(t.tests, func(a, b result) int { return cmp.Or(cmp.Compare(b.elapsed, a.elapsed), cmp.Compare(a.name, b.name)) })
	return t
}

func (t *tally) add(name string, pkg *testjson.Package) {
	results := map[testjson.TestName]result{}
	collect := func(tests []testjson.TestCase, outcome testjson.Action) {
		for _, test := range tests {
			if test.Test.IsSubTest() {
				continue
			}
			r := results[test.Test]
			if test.ID > r.last {
				r.outcome, r.last = outcome, test.ID
			}
			r.name, r.pkg, r.elapsed = test.Test.Name(), name, max(r.elapsed, test.Elapsed)
			results[test.Test] = r
		}
	}
	collect(pkg.Passed, testjson.ActionPass)
	collect(pkg.Failed, testjson.ActionFail)
	collect(pkg.Skipped, testjson.ActionSkip)
	for _, r := range results {
		t.tests = append(t.tests, r)
		switch r.outcome {
		case testjson.ActionPass:
			t.passed++
		case testjson.ActionFail:
			t.failed++
		default:
			t.skipped++
		}
	}
	if pkg.TestMainFailed() {
		t.broken = append(t.broken, name)
	}
}

func (t *tally) merge(other *tally) {
	t.passed += other.passed
	t.skipped += other.skipped
	t.failed += other.failed
	t.broken = append(t.broken, other.broken...)
	t.tests = append(t.tests, other.tests...)
}

func (t *tally) String() string {
	text := fmt.Sprintf("%d passed, %d skipped, %d failed", t.passed, t.skipped, t.failed)
	if len(t.broken) > 0 {
		text += fmt.Sprintf(", %d packages failed outside of a test", len(t.broken))
	}
	return text
}
