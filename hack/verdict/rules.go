//go:build linux

package main

import (
	"regexp"
	"slices"
	"strings"

	"gotest.tools/gotestsum/testjson"
)

// neverRetried are folders whose tests show races of the product rather than of the machine: signals, records, and undoing after a crash.
// The folders below them count too.
var neverRetried = []string{"pkg/checkpoint", "pkg/plugin/prepare", "pkg/plugin/mps", "pkg/mpsd", "pkg/profiler/native", "test/lifecycle"}

var leak = regexp.MustCompile(`(?i)leak`)

// trouble is the output of a package that excludes a retry of all its tests.
type trouble struct{ race, panicked map[string]bool }

func newTrouble() trouble { return trouble{race: map[string]bool{}, panicked: map[string]bool{}} }

// note adds one event. Go may print a panic or a race in the output of another test that runs at the same time.
func (t trouble) note(e testjson.TestEvent) {
	if e.Action != testjson.ActionOutput {
		return
	}
	if strings.Contains(e.Output, "WARNING: DATA RACE") || strings.Contains(e.Output, "race detected during execution of test") {
		t.race[e.Package] = true
	}
	if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") || strings.HasPrefix(e.Output, "SIGSEGV") {
		t.panicked[e.Package] = true
	}
}

// refusal returns why a failed test must not run again, or "" if it may.
func (t trouble) refusal(test testjson.TestCase, output []string) string {
	within := func(folder string) bool { return strings.Contains("/"+test.Package+"/", "/"+folder+"/") }
	switch {
	case t.race[test.Package]:
		return "data race in its package"
	case t.panicked[test.Package]:
		return "panic in its package"
	case test.Elapsed < 0:
		return "it did not finish"
	case slices.ContainsFunc(neverRetried, within):
		return "tests of this package are never retried"
	case slices.ContainsFunc(output, isLeak):
		return "leak"
	}
	return ""
}

// isLeak excludes the lines that Go prints around a test, which contain its name.
func isLeak(line string) bool {
	line = strings.TrimSpace(line)
	return !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") && leak.MatchString(line)
}
