package selection

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Result is the outcome of a top-level test, of its last run if it ran again. Seconds are the time of its longest run.
type Result struct {
	Test, Group string
	// Outcome is pass, fail or skip, or unfinished for a test without an end.
	Outcome string
	Seconds float64
}

// event is a line of test2json with the fields that are read here.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// Show writes the output of tests, from the events of test2json, as text. It returns the results of top-level tests in the order in which
// they began. A line that is not an event is written unchanged.
func Show(in io.Reader, out io.Writer) ([]Result, error) {
	var results []Result
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			text := line
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				text = []byte(e.Output)
				results = e.apply(results)
			}
			if _, err := out.Write(text); err != nil {
				return results, err
			}
		}
		if err == io.EOF {
			return results, nil
		}
		if err != nil {
			return results, err
		}
	}
}

// apply adds the event to the results of top-level tests.
func (e event) apply(results []Result) []Result {
	if e.Test == "" || strings.Contains(e.Test, "/") {
		return results
	}
	i := slices.IndexFunc(results, func(r Result) bool { return r.Test == e.Test })
	switch e.Action {
	case "run":
		if i < 0 {
			return append(results, Result{Test: e.Test, Outcome: "unfinished"})
		}
		results[i].Outcome = "unfinished"
	case "pass", "fail", "skip":
		if i >= 0 {
			results[i].Outcome, results[i].Seconds = e.Action, max(results[i].Seconds, e.Elapsed)
		}
	}
	return results
}

// Slowest returns at most n results, the slowest first.
func Slowest(results []Result, n int) []Result {
	sorted := slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return sorted[:min(n, len(sorted))]
}
