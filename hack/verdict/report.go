//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// slowest is the number of tests of unit and of e2e in the report.
const slowest = 15

// complaint matches a line of a failed step that names a failure.
var complaint = regexp.MustCompile(`^ *--- FAIL:|^panic:|^WARNING: DATA RACE|^fatal error:|^FAIL\s|^make.*\*\*\*|^\S+\.go:\d+:`)

// complaints is the number of printed lines of a step.
const complaints = 40

// report prints the duration of the steps, slow, flaky and failed tests, and the count of tests last.
func (r *runner) report() error {
	w := &strings.Builder{}
	r.reportSteps(w)
	unit, unitErr := r.tests("unit")
	e2e, e2eErr := r.tests("e2e")
	check, checkErr := r.tests("check")
	for _, part := range []struct {
		name  string
		tally *tally
	}{{"unit", unit}, {"e2e", e2e}} {
		reportSlowest(w, part.name, part.tally)
	}
	flaky, flakyErr := readLines(filepath.Join(r.dir, flakyFile))
	r.reportFailures(w)
	r.reportLifecycle(w)
	for _, line := range flaky {
		fmt.Fprintln(w, line)
	}
	total := &tally{}
	for _, part := range []struct {
		name  string
		tally *tally
	}{{"check", check}, {"unit", unit}, {"e2e", e2e}} {
		total.merge(part.tally)
		if len(part.tally.tests)+len(part.tally.broken) > 0 {
			fmt.Fprintf(w, "%s: %s\n", part.name, part.tally)
		}
	}
	fmt.Fprintln(w, r.done(total))
	_, err := r.out.Write([]byte(w.String()))
	return errors.Join(unitErr, e2eErr, checkErr, flakyErr, err)
}

func (r *runner) reportSteps(w *strings.Builder) {
	fmt.Fprintf(w, "\n%-10s %8s %8s %11s %5s  %s\n", "step", "seconds", "CPU", "machine CPU", "busy", "result")
	for _, s := range r.steps {
		busy := 0.0
		if s.took > 0 {
			busy = 100 * s.machine.Seconds() / s.took.Seconds() / float64(runtime.NumCPU())
		}
		fmt.Fprintf(w, "%-10s %8.1f %8.1f %11.1f %4.0f%%  %s\n", s.name, s.took.Seconds(), s.cpu.Seconds(), s.machine.Seconds(), busy, s.result)
	}
	fmt.Fprintf(w, "all        %8.1f seconds on %d CPUs; load average %s at the start, %s at the end\n",
		time.Since(r.started).Seconds(), runtime.NumCPU(), r.load, load())
}

func reportSlowest(w *strings.Builder, name string, t *tally) {
	if len(t.tests) == 0 {
		return
	}
	fmt.Fprintf(w, "slowest tests of %s, in seconds:\n", name)
	for _, test := range t.tests[:min(slowest, len(t.tests))] {
		fmt.Fprintf(w, "%8.1f  %s %s\n", test.elapsed.Seconds(), test.name, test.pkg)
	}
}

// reportFailures repeats the failures for readers who only see the last lines.
func (r *runner) reportFailures(w *strings.Builder) {
	for _, s := range r.steps {
		if s.result != "failed" {
			continue
		}
		lines, err := readLines(filepath.Join(r.dir, s.name+".log"))
		if err != nil {
			fmt.Fprintf(w, "%s: %v\n", s.name, err)
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return !complaint.MatchString(line) })
		fmt.Fprintf(w, "%s failed:\n", s.name)
		for _, line := range lines[:min(complaints, len(lines))] {
			fmt.Fprintln(w, line)
		}
	}
}

// reportLifecycle repeats the last line of lifecycle: points, share and leaks.
func (r *runner) reportLifecycle(w *strings.Builder) {
	lines, err := readLines(filepath.Join(r.dir, "lifecycle.log"))
	if err != nil {
		fmt.Fprintf(w, "lifecycle: %v\n", err)
	}
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, " points") {
			fmt.Fprintf(w, "lifecycle: %s\n", strings.TrimPrefix(line, "lifecycle: "))
			return
		}
	}
}

// tests reads the events of all files NAME.json and NAME-*.json.
func (r *runner) tests(name string) (*tally, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, name+"*.json"))
	if err != nil {
		return nil, err
	}
	var executions []*testjson.Execution
	for _, path := range files {
		if base := filepath.Base(path); base != name+".json" && !strings.HasPrefix(base, name+"-") {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return &tally{}, err
		}
		// An incomplete line, as left by a killed step, is not an event.
		execution, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: file, IgnoreNonJSONOutputLines: true})
		if err := errors.Join(err, file.Close()); err != nil {
			return &tally{}, fmt.Errorf("reading the events of %s: %w", filepath.Base(path), err)
		}
		executions = append(executions, execution)
	}
	return newTally(executions...), nil
}

// done is the last line, in gotestsum's form.
func (r *runner) done(total *tally) string {
	verdict := "passed"
	if slices.ContainsFunc(r.steps, func(s *step) bool { return s.result != "passed" }) {
		verdict = "FAILED"
	}
	line := fmt.Sprintf("DONE %d tests, %d skipped", len(total.tests), total.skipped)
	if failures := total.failed + len(total.broken); failures > 0 {
		line += fmt.Sprintf(", %d failures", failures)
	}
	return fmt.Sprintf("%s in %.1fs: %s", line, time.Since(r.started).Seconds(), verdict)
}
