//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripted is a runner whose steps are shell scripts with the folder of the run as $1.
func scripted(t *testing.T, scripts map[string]string) (*runner, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	r := &runner{dir: t.TempDir(), out: out, loaded: func() bool { return false }}
	r.command = func(step string) []string { return []string{"bash", "-c", scripts[step], "sh", r.dir} }
	return r, out
}

var allSteps = []string{"check", "unit", "e2e", "lifecycle"}

func TestSteps_AllPass_ReportAtTheEnd(t *testing.T) {
	t.Parallel()
	r, out := scripted(t, map[string]string{
		"check": "true", "unit": "true", "e2e": "true", "lifecycle": `echo "2,600 of 12,900 points, share 3/5, 0 leaks"`,
	})
	require.NoError(t, r.run(t.Context(), allSteps, false), out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Regexp(t, `^DONE 0 tests, 0 skipped in .*: passed$`, lines[len(lines)-1])
	assert.Equal(t, "lifecycle: 2,600 of 12,900 points, share 3/5, 0 leaks", lines[len(lines)-2])
	assert.Contains(t, out.String(), "load average ")
}

func TestSteps_UnitFails_OthersNotRunAndFailureRepeated(t *testing.T) {
	t.Parallel()
	r, out := scripted(t, map[string]string{"check": "true", "unit": `echo "--- FAIL: TestA_B_C (1.00s)"; echo more; exit 7`, "e2e": "echo ran", "lifecycle": "echo ran"})
	err := r.run(t.Context(), allSteps, true)
	assert.Equal(t, 7, exitCode(err), err)
	assert.NotContains(t, out.String(), "ran\n")
	assert.Contains(t, out.String(), "unit failed:\n--- FAIL: TestA_B_C (1.00s)\nDONE ")
	assert.Regexp(t, `\ne2e .* not run\nlifecycle .* not run\n`, out.String())
	assert.True(t, strings.HasSuffix(out.String(), ": FAILED\n"), out)
}

func TestSteps_E2EFails_LifecycleStillRuns(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		r, out := scripted(t, map[string]string{"check": "true", "unit": "true", "e2e": "exit 1", "lifecycle": `echo "10 points, 0 leaks"`})
		require.Error(t, r.run(t.Context(), allSteps, beside), out)
		assert.Regexp(t, `\nlifecycle .* passed\n`, out.String())
		assert.Contains(t, out.String(), "\nlifecycle: 10 points, 0 leaks\n")
	}
}

func TestSteps_LifecycleFails_RunFails(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		r, out := scripted(t, map[string]string{"check": "true", "unit": "true", "e2e": "true", "lifecycle": "exit 1"})
		require.Error(t, r.run(t.Context(), allSteps, beside), out)
		assert.True(t, strings.HasSuffix(out.String(), ": FAILED\n"), out)
	}
}

func TestSteps_Beside_BothRunAtOnce(t *testing.T) {
	t.Parallel()
	if _, err := newLowestWeight(); err != nil {
		t.Skip(err)
	}
	// Both steps wait for each other.
	meet := func(mine, other string) string {
		return `touch "$1/` + mine + `"; until [ -e "$1/` + other + `" ]; do sleep 0.1; done; echo met`
	}
	r, out := scripted(t, map[string]string{"e2e": meet("a", "b"), "lifecycle": meet("b", "a")})
	require.NoError(t, r.run(t.Context(), []string{"e2e", "lifecycle"}, true), out)
	assert.Equal(t, 2, strings.Count(out.String(), "met\n"))
	assert.NotContains(t, out.String(), "lifecycle runs after e2e")
	if _, group, found := strings.Cut(out.String(), "in the CPU cgroup "); found {
		group, _, _ = strings.Cut(group, "\n")
		assert.NoDirExists(t, group, "a group goes with its step")
	}
}

func TestSteps_MachineLoaded_LifecycleAfterE2E(t *testing.T) {
	t.Parallel()
	r, out := scripted(t, map[string]string{"e2e": `touch "$1/e2e"`, "lifecycle": `[ -e "$1/e2e" ]`})
	r.loaded = func() bool { return true }
	require.NoError(t, r.run(t.Context(), []string{"e2e", "lifecycle"}, true), out)
	assert.Contains(t, out.String(), "verdict: lifecycle runs after e2e: other processes keep the CPUs busy\n")
}

// TestSteps_E2EDone_LifecycleHasUsualWeight: lifecycle waits until its group gets the weight of others.
func TestSteps_E2EDone_LifecycleHasUsualWeight(t *testing.T) {
	t.Parallel()
	weight, err := newLowestWeight()
	if err != nil || weight.group == "" {
		t.Skip("no CPU cgroup: ", err)
	}
	weight.remove(false)
	r, out := scripted(t, map[string]string{
		"e2e": `until [ -e "$1/low" ]; do sleep 0.1; done`,
		"lifecycle": `group=$(dirname "$(grep -lx $$ /sys/fs/cgroup/prism-lifecycle-*/cgroup.procs /sys/fs/cgroup/*/prism-lifecycle-*/cgroup.procs 2>/dev/null)")
			weight() { cat "$group/cpu.shares" 2>/dev/null || cat "$group/cpu.weight"; }
			low=$(weight); touch "$1/low"; until [ "$(weight)" != "$low" ]; do sleep 0.1; done; echo "weights $low $(weight)"`,
	})
	require.NoError(t, r.run(t.Context(), []string{"e2e", "lifecycle"}, true), out)
	assert.Regexp(t, `\nweights (2 1024|1 100)\n`, out.String())
}

func TestSteps_Interrupted_NoProcessLeft(t *testing.T) {
	t.Parallel()
	r, out := scripted(t, map[string]string{
		"e2e":       `sleep 1000 & echo $! >"$1/pid.1"; trap 'touch "$1/cleaned"' EXIT; mv "$1/pid.1" "$1/pid1"; wait`,
		"lifecycle": `sleep 1000 & echo $! >"$1/pid.2"; mv "$1/pid.2" "$1/pid2"; wait`,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx, []string{"e2e", "lifecycle"}, true) }()
	var pids []int
	for _, name := range []string{"pid1", "pid2"} {
		require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(r.dir, name)); return err == nil }, time.Minute, 10*time.Millisecond)
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.FileExists(t, filepath.Join(r.dir, "cleaned"), "a step cleans up before it ends")
	assert.Contains(t, out.String(), "DONE ")
	for _, pid := range pids {
		// A process that exited remains for a moment until its new parent has waited for it.
		assert.Eventually(t, func() bool { return ended(pid) }, time.Minute, 10*time.Millisecond)
	}
}

func ended(pid int) bool {
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(state), ") Z ")
}

func TestCPUHierarchy_Mounts_LowestWeightOfEachVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ mounts, root, file, lowest, usual string }{
		"version 1":           {"31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/cpu", "cpu.shares", "2", "1024"},
		"version 1, together": {"31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n", "/sys/fs/cgroup/cpu,cpuacct", "cpu.shares", "2", "1024"},
		"version 2":           {"30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup", "cpu.weight", "1", "100"},
		"another controller":  {"31 24 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n", "", "", "", ""},
		"none":                {"24 1 0:22 / /proc rw - proc proc rw\n", "", "", "", ""},
	} {
		root, file, lowest, usual := cpuHierarchy(c.mounts)
		assert.Equal(t, []string{c.root, c.file, c.lowest, c.usual}, []string{root, file, lowest, usual}, name)
	}
}

func TestParseBusy_ProcStat_AllButIdleAndParts(t *testing.T) {
	t.Parallel()
	got, err := parseBusy("cpu  100 20 30 9000 800 4 6 50 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	require.NoError(t, err)
	assert.Equal(t, 1600*time.Millisecond, got)
	_, err = parseBusy("intr 1\n")
	assert.ErrorContains(t, err, `unknown line "intr 1"`)
}
