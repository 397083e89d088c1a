//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"gotest.tools/gotestsum/testjson"
)

func TestRefusal_Package_ThoseOfRecordsAndSignalsNeverRetried(t *testing.T) {
	t.Parallel()
	const module = "github.com/prism-gpu/prism/"
	for pkg, want := range map[string]bool{
		"pkg/checkpoint": true, "pkg/plugin/prepare": true, "pkg/plugin/prepare/gc": true, "pkg/plugin/mps": true, "pkg/mpsd": true, "pkg/profiler/native": true, "test/lifecycle": true,
		"pkg/profiler": false, "pkg/profiler/nsight": false, "pkg/mpsx": false, "pkg/controller/reports": false, "test/e2e": false,
	} {
		refusal := newTrouble().refusal(testjson.TestCase{Package: module + pkg, Test: "TestX_Y_Z"}, nil)
		assert.Equalf(t, want, refusal != "", "%s: %q", pkg, refusal)
	}
}

func TestRefusal_Output_RacePanicAndLeakNotRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pkg, output, want string
	}{
		"failed assertion":           {"a", "    a_test.go:3: got 1, want 2\n", ""},
		"race":                       {"a", "WARNING: DATA RACE\n", "data race in its package"},
		"race of its own test":       {"a", "    testing.go:1712: race detected during execution of test\n", "data race in its package"},
		"race of another package":    {"b", "WARNING: DATA RACE\n", ""},
		"panic":                      {"a", "panic: boom\n", "panic in its package"},
		"fatal error":                {"a", "fatal error: concurrent map writes\n", "panic in its package"},
		"panic of a child, quoted":   {"a", "    a_test.go:3: the program said: panic: boom\n", ""},
		"panic of another package":   {"b", "panic: boom\n", ""},
		"leak":                       {"a", "    a_test.go:3: Leaked effects: 1\n", "leak"},
		"leak in the test's name":    {"a", "--- FAIL: TestLeaks_Y_Z (0.00s)\n", ""},
		"leak in a subtest's name":   {"a", "    --- FAIL: TestX/leak (0.00s)\n", ""},
		"leak where it is announced": {"a", "=== RUN   TestLeaks_Y_Z\n", ""},
	} {
		found := newTrouble()
		found.note(testjson.TestEvent{Action: testjson.ActionOutput, Package: c.pkg, Output: c.output})
		assert.Equal(t, c.want, found.refusal(testjson.TestCase{Package: "a", Test: "TestX_Y_Z"}, []string{c.output}), name)
	}
}

func TestRefusal_TestThatDidNotEnd_NotRetried(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "it did not finish", newTrouble().refusal(testjson.TestCase{Package: "a", Test: "TestX_Y_Z", Elapsed: -1}, nil))
}

func TestReserve_TwoOfARun_ThirdRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls []int
		want  []bool
	}{
		"one by one":    {[]int{1, 1, 1}, []bool{true, true, false}},
		"two at once":   {[]int{2, 1}, []bool{true, false}},
		"all or none":   {[]int{1, 2, 1}, []bool{true, false, true}},
		"three at once": {[]int{3, 2}, []bool{false, true}},
	} {
		dir := t.TempDir()
		for i, count := range c.calls {
			got, err := reserve(dir, make([]string, count))
			assert.NoError(t, err)
			assert.Equalf(t, c.want[i], got, "%s: call %d", name, i)
		}
	}
}
