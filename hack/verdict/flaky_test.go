//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCheckFlaky_PlantedLists_ThreeOfANameIn14DaysRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"empty":                     {nil, ""},
		"comment and blank line":    {[]string{"# flaky tests", ""}, ""},
		"two lines of a name":       {[]string{"2026-11-27 TestA_B_C", "2026-11-26 TestA_B_C"}, ""},
		"three lines of a name":     {[]string{"2026-11-27 TestA_B_C", "2026-11-26 TestA_B_C", "2026-11-25 TestA_B_C"}, "TestA_B_C was flaky 3 times in 14 days"},
		"three on one day":          {[]string{"2026-11-27 TestA_B_C", "2026-11-27 TestA_B_C", "2026-11-27 TestA_B_C"}, "TestA_B_C was flaky 3 times"},
		"three of two names":        {[]string{"2026-11-27 TestA_B_C", "2026-11-27 TestA_B_C", "2026-11-27 TestD_E_F"}, ""},
		"the third 14 days ago":     {[]string{"2026-11-27 TestA_B_C", "2026-11-26 TestA_B_C", "2026-11-13 TestA_B_C"}, "TestA_B_C was flaky 3 times"},
		"the third 15 days ago":     {[]string{"2026-11-27 TestA_B_C", "2026-11-26 TestA_B_C", "2026-11-12 TestA_B_C"}, ""},
		"one newer than the date":   {[]string{"2026-11-28 TestA_B_C", "2026-11-27 TestA_B_C", "2026-11-26 TestA_B_C"}, "TestA_B_C was flaky 3 times"},
		"no name":                   {[]string{"2026-11-27"}, `line 1: must be "YYYY-MM-DD TestName", got "2026-11-27"`},
		"no date":                   {[]string{"# head", "TestA_B_C"}, "line 2: must be"},
		"a day that does not exist": {[]string{"2026-11-31 TestA_B_C"}, "line 1: must be"},
		"not a test":                {[]string{"2026-11-27 BenchmarkA"}, "line 1: must be"},
		"a subtest":                 {[]string{"2026-11-27 TestA_B_C/d"}, "line 1: must be"},
		"more words":                {[]string{"2026-11-27 TestA_B_C again"}, "line 1: must be"},
		"two spaces":                {[]string{"2026-11-27  TestA_B_C"}, "line 1: must be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkFlaky(strings.Join(c.lines, "\n")+"\n", time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC))
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}
