//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A test that is flaky this many times in this many days must be fixed.
const (
	flakyLimit = 3
	flakyDays  = 14
)

var testName = regexp.MustCompile(`^Test\w+$`)

// checkFlaky checks lines "YYYY-MM-DD TestName": their form, and the number of lines with each name in the days before date. Lines that are
// newer than date, the date of the last commit, count too: they belong to the next commit.
func checkFlaky(text string, date time.Time) error {
	var problems []error
	counts := map[string]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		day, name, _ := strings.Cut(line, " ")
		seen, err := time.Parse(time.DateOnly, day)
		if err != nil || !testName.MatchString(name) {
			problems = append(problems, fmt.Errorf("line %d: must be \"YYYY-MM-DD TestName\", got %q", number, line))
			continue
		}
		if !seen.Before(date.AddDate(0, 0, -flakyDays)) {
			counts[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] >= flakyLimit {
			problems = append(problems, fmt.Errorf("%s was flaky %d times in %d days: fix the test, and remove its lines in the same commit",
				name, counts[name], flakyDays))
		}
	}
	return errors.Join(problems...)
}
