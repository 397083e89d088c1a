//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planted is a module whose tests fail according to their names. A test counts its runs in a file. Functions are indented, because
// test/words checks the names of tests at the beginning of a line.
var planted = map[string]string{
	"go.mod": "module planted\n\ngo 1.26.0\n",
	"flaky/flaky_test.go": `package flaky
import ("os"; "testing")
	func failFirst(t *testing.T, times int) {
	name := os.Getenv("COUNTS") + "/" + t.Name()
	runs, _ := os.ReadFile(name)
	os.WriteFile(name, append(runs, 'x'), 0o644)
	if len(runs) < times { t.Errorf("run %d", len(runs)) }
}
	func TestOnce(t *testing.T) { failFirst(t, 1) }
	func TestOnceMore(t *testing.T) { failFirst(t, 1) }
	func TestThird(t *testing.T) { failFirst(t, 1) }
	func TestTwice(t *testing.T) { failFirst(t, 2) }
	func TestSubtest(t *testing.T) { t.Run("a", func(t *testing.T) {}); failFirst(t, 1) }
	func TestPasses(t *testing.T) { failFirst(t, 0) }
	func TestSkipsThen(t *testing.T) { if os.Getenv("COUNTS") != "" { failFirst(t, 1); t.Skip() } }
	func TestLeak(t *testing.T) { failFirst(t, 1); if t.Failed() { t.Error("1 GPU leaked") } }
	func TestPanic(t *testing.T) { failFirst(t, 1); if t.Failed() { panic("boom") } }
	func TestExit(t *testing.T) { failFirst(t, 1); if t.Failed() { os.Exit(1) } }
	func TestRace(t *testing.T) {
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
	failFirst(t, 1)
}
`,
	"pkg/checkpoint/c_test.go": `package checkpoint
import "testing"
	func TestRecord(t *testing.T) { t.Error("lost") }
`,
	"broken/b_test.go": `package broken
import "testing"
	func TestBroken(t *testing.T) { undefined() }
`,
	"main/main_test.go": `package main
import ("os"; "testing")
	func TestMain(m *testing.M) { m.Run(); os.Exit(3) }
	func TestFine(t *testing.T) {}
`,
}

func plant(t *testing.T) string {
	t.Helper()
	module := t.TempDir()
	for name, text := range planted {
		path := filepath.Join(module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return module
}

// planting is a suite of planted tests: the flags and packages of go test.
func planting(t *testing.T, module string, flags []string, packages ...string) (*suite, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	s := &suite{name: "unit", dir: t.TempDir(), workDir: module, out: out, log: out, format: "pkgname-and-test-fails"}
	s.command = func(pkg, test string) []string {
		return append([]string{"env", "COUNTS=" + s.dir}, goTestCommand(append(flags, "-vet=off"), packages, pkg, test)...)
	}
	return s, out
}

// runs is the number of runs of a planted test.
func runs(t *testing.T, s *suite, test string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, test))
	require.NoError(t, err)
	return len(text)
}

func TestSuite_PlantedFailures_OnlyAFlakyTestRunsAgain(t *testing.T) {
	t.Parallel()
	module := plant(t)
	for name, c := range map[string]struct {
		flags   []string
		pkg     string
		runs    map[string]int
		passes  bool
		printed string
	}{
		"flaky once":               {[]string{"-run", "^TestOnce$|Passes"}, "./flaky", map[string]int{"TestOnce": 2, "TestPasses": 1}, true, "FLAKY TestOnce planted/flaky\n"},
		"two flaky":                {[]string{"-run", "TestOnce"}, "./flaky", map[string]int{"TestOnce": 2, "TestOnceMore": 2}, true, "FLAKY TestOnceMore planted/flaky\n"},
		"with a subtest":           {[]string{"-run", "TestSubtest"}, "./flaky", map[string]int{"TestSubtest": 2}, true, "FLAKY TestSubtest planted/flaky\n"},
		"three flaky":              {[]string{"-run", "TestOnce|TestThird"}, "./flaky", map[string]int{"TestOnce": 1, "TestThird": 1}, false, "no retry: 3 failed, and at most 2 tests are retried in a run"},
		"fails twice":              {[]string{"-run", "TestTwice"}, "./flaky", map[string]int{"TestTwice": 2}, false, "retry: TestTwice of planted/flaky"},
		"skipped by the retry":     {[]string{"-run", "TestSkipsThen"}, "./flaky", map[string]int{"TestSkipsThen": 2}, false, "retry: TestSkipsThen"},
		"leak":                     {[]string{"-run", "TestLeak"}, "./flaky", map[string]int{"TestLeak": 1}, false, "no retry: TestLeak: leak"},
		"panic":                    {[]string{"-run", "TestPanic"}, "./flaky", map[string]int{"TestPanic": 1}, false, "no retry: TestPanic: panic in its package"},
		"exit":                     {[]string{"-run", "TestExit"}, "./flaky", map[string]int{"TestExit": 1}, false, "no retry: "},
		"data race":                {[]string{"-race", "-run", "TestRace"}, "./flaky", map[string]int{"TestRace": 1}, false, "no retry: TestRace: data race in its package"},
		"of a package's own rule":  {nil, "./pkg/checkpoint", nil, false, "no retry: TestRecord: tests of this package are never retried"},
		"does not compile":         {nil, "./broken", nil, false, "undefined: undefined"},
		"failed outside of a test": {nil, "./main", nil, false, "no retry: planted/main failed outside of a test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, out := planting(t, module, c.flags, c.pkg)
			err := s.run(t.Context())
			assert.Equalf(t, c.passes, err == nil, "%v\n%s", err, out)
			assert.Contains(t, out.String(), c.printed)
			for test, want := range c.runs {
				assert.Equalf(t, want, runs(t, s, test), "runs of %s\n%s", test, out)
			}
		})
	}
}

func TestSuite_ThirdFlakyTestOfARun_Fails(t *testing.T) {
	t.Parallel()
	module := plant(t)
	first, out := planting(t, module, []string{"-run", "TestOnce"}, "./flaky")
	require.NoError(t, first.run(t.Context()), out)
	second, out := planting(t, module, []string{"-run", "TestThird"}, "./flaky")
	second.name, second.dir = "e2e-node", first.dir
	assert.Error(t, second.run(t.Context()), out)
	assert.Equal(t, 1, runs(t, second, "TestThird"))

	report := &bytes.Buffer{}
	r := &runner{dir: first.dir, out: report, steps: []*step{{name: "unit", result: "passed"}, {name: "e2e", result: "failed"}}}
	require.NoError(t, r.report())
	assert.Contains(t, report.String(), "FLAKY TestOnce planted/flaky\nFLAKY TestOnceMore planted/flaky\nunit: 2 passed, 0 skipped, 0 failed\ne2e: 0 passed, 0 skipped, 1 failed\nDONE 3 tests, 0 skipped, 1 failures in ")
}

func TestSuite_CompiledProgram_FlakyTestRunsAgain(t *testing.T) {
	t.Parallel()
	module := plant(t)
	build := command(t.Context(), []string{"go", "test", "-c", "-vet=off", "-o", "flaky.test", "./flaky"})
	build.Dir = module
	require.NoError(t, build.Run())
	s, out := planting(t, module, nil)
	s.format = "standard-verbose"
	s.command = func(_, test string) []string {
		return append([]string{"env", "COUNTS=" + s.dir}, programCommand("planted/flaky", []string{"./flaky.test", "-test.run", "^TestOnce$"}, test)...)
	}
	require.NoError(t, s.run(t.Context()), out)
	assert.Equal(t, 2, runs(t, s, "TestOnce"))
	assert.Contains(t, out.String(), "--- PASS: TestOnce")
	assert.Contains(t, out.String(), "FLAKY TestOnce planted/flaky\n")
}
