package lifecycle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/sandbox"
)

// childEnv is the environment variable of a child process with its childSpec.
const childEnv = "LIFECYCLE_ORDER"

// tally counts the points that this run has tried, all points of its scenarios, and the points with a violated invariant.
var tally struct{ tried, all, leaks atomic.Int64 }

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(child(m, text))
	}
	code := m.Run()
	if file := os.Getenv("LIFECYCLE_TALLY"); file != "" {
		line := fmt.Sprintf("%d %d %d\n", tally.tried.Load(), tally.all.Load(), tally.leaks.Load())
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "lifecycle:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// child runs the acts of a childSpec; with fake time as a test.
func child(m *testing.M, text string) int {
	var o childSpec
	err := json.Unmarshal([]byte(text), &o)
	if err == nil && o.FakeTime {
		if err = flag.Set("test.run", "^TestChild_LayoutScenario_FakeTime$"); err == nil {
			return m.Run()
		}
	}
	if err == nil {
		err = runChild(context.Background(), o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// The killed processes are real ones that use the driver's library.
func TestScenarios_ProcessKilled_Recovers(t *testing.T) {
	t.Parallel()
	killed := newSandboxed(t, mixedNode(3))
	cut, err := modelledMachine(t.TempDir(), mixedNode(3))
	require.NoError(t, errors.Join(err, cut.countFromStrange()))
	t.Run("EveryFaultPoint", func(t *testing.T) { killAtEveryFaultPoint(t, killed, cut) })
	t.Run("RunTwice", func(t *testing.T) { sameJournals(t, killed) })
	t.Run("RandomScenarios", func(t *testing.T) { killAtRandom(t, killed, cut) })
	t.Run("OtherProcessUnaffected", func(t *testing.T) { killBesideOther(t, killed) })
	t.Run("ConcurrentProcesses", func(t *testing.T) { concurrentProcesses(t, killed) })
}

// killAtEveryFaultPoint kills a process before and after each fault point of each scenario, and cuts the power there.
func killAtEveryFaultPoint(t *testing.T, killed, cut *Machine) {
	for i, s := range selectedScenarios() {
		t.Run(s.name, func(t *testing.T) {
			if !takeScenario(t, i) {
				t.Skip("another run runs it")
			}
			o := childSpec{Acts: s.acts, Refuse: s.refuse, Early: s.early}
			killed.killEverywhere(t, s, o, cut)
			if full() {
				killed.killAtReads(t, s, o)
			}
		})
	}
}

// killEverywhere tries the points of the scenario that belong to the run's share. Concurrent acts race, so each of their runs differs: then
// it tries all their fault points.
func (m *Machine) killEverywhere(t *testing.T, s *scenario, o childSpec, cut *Machine) {
	t.Helper()
	if !s.races() {
		m.tryPoints(t, s, o, cut, shareOf(t, s.family))
		return
	}
	sites, seen, before := 0, map[string]bool{}, tally.tried.Load()
	dies := func(at int, late bool) bool {
		o.KillAt, o.Late = at, late
		return m.runKilled(t, s, o, cut, seen)
	}
	for at := 1; dies(at, false) && dies(at, true); at++ {
		sites++
	}
	require.Greater(t, sites, 5)
	t.Logf("%d points at %d fault points of acts that race", tally.tried.Load()-before, sites)
}

// killAtReads kills the process at the fault points that only read. The state there is the same as at the fault point before, unless a
// goroutine of the process changes something meanwhile. So only full runs do it.
func (m *Machine) killAtReads(t *testing.T, s *scenario, o childSpec) {
	t.Helper()
	o.CountReads = true
	for o.KillAt = 1; ; o.KillAt++ {
		m.setUp(t, s)
		end := m.spawn(t, o)
		if !end.killed {
			return
		}
		if last := end.journal[len(end.journal)-1]; last.Call == reached && !readOnly(last.Path) {
			continue // it is a point of the scenario
		}
		tally.all.Add(1)
		if !countKillPoint(t, m.recoverAfter(t, claimStates(s, end.ended), o.KillAt%2 == 0, false), "killed at fault point %d, reads counted", o.KillAt) {
			return
		}
	}
}

// takeScenario reports whether this run is the first to take the scenario. Concurrent runs divide the scenarios among them through the
// directory LIFECYCLE_TAKEN.
func takeScenario(t *testing.T, index int) bool {
	t.Helper()
	dir := os.Getenv("LIFECYCLE_TAKEN")
	if dir == "" {
		return true
	}
	err := os.Mkdir(filepath.Join(dir, strconv.Itoa(index)), 0o700)
	if !errors.Is(err, fs.ErrExist) {
		require.NoError(t, err, "LIFECYCLE_TAKEN")
	}
	return err == nil
}

// runKilled runs a scenario in a process that is killed, checks its state and recovers; then it recovers from every state that a power
// cut at that moment may leave and that was not checked before. It returns false if the scenario has fewer fault points, or if an
// invariant was violated.
func (m *Machine) runKilled(t *testing.T, s *scenario, o childSpec, cut *Machine, seen map[string]bool) bool {
	t.Helper()
	m.setUp(t, s)
	disk, err := read(m.durable()...)
	require.NoError(t, err)
	end := m.spawn(t, o)
	claims := claimStates(s, end.ended)
	if !end.killed {
		require.NoError(t, end.asExpected(s))
		require.NoError(t, m.recoverAfter(t, claims, o.KillAt%2 == 0, false))
		return false
	}
	cluster, err := m.clusterState()
	require.NoError(t, err)
	tally.all.Add(1)
	if !countKillPoint(t, m.recoverAfter(t, claims, !o.Late, false), "killed at fault point %d (late %t)", o.KillAt, o.Late) {
		return false
	}
	for _, c := range end.journal {
		disk.apply(c)
	}
	for _, left := range disk.images() {
		key := fmt.Sprint(left, end.ended, cluster)
		if seen[key] {
			continue
		}
		seen[key] = true
		cut.bootAfter(t, m, s, left, cluster)
		tally.all.Add(1)
		err := cut.recoverAfter(t, claims, len(seen)%2 == 0, true)
		if !countKillPoint(t, err, "power cut at fault point %d (late %t) that left %.600s", o.KillAt, o.Late, fmt.Sprint(left)) {
			return false
		}
	}
	return true
}

// countKillPoint adds a point that was tried to the tally.
func countKillPoint(t *testing.T, err error, format string, args ...any) bool {
	t.Helper()
	tally.tried.Add(1)
	if err == nil {
		return true
	}
	tally.leaks.Add(1)
	t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	return false
}

// asExpected checks the results of a scenario without a kill.
func (r *outcome) asExpected(s *scenario) error {
	for i, act := range s.acts {
		err, end := r.ended[i]
		if !end || !s.anyOutcome && (err != nil) != act.Fails {
			return fmt.Errorf("act %d (%s %s): ended %t with error %q", i, act.Call, act.Claim, end, fmt.Sprint(err))
		}
	}
	return nil
}

// newSandboxed returns a machine with driver files, whose processes load the library. A process can load one library, so there is one
// such machine per test run.
func newSandboxed(t *testing.T, spec model.Spec) *Machine {
	t.Helper()
	node := sandbox.Start(t, spec)
	m, err := newMachine(t.TempDir(), node.Model)
	require.NoError(t, err)
	m.installed(node.Root(), node.Library())
	m.root, m.library = node.Root(), node.Library()
	m.reload = func() error {
		node.UnloadDriver()
		node.LoadDriver()
		return nil
	}
	m.reloadFirst = func() error {
		node.UnloadDriver()
		node.LoadDriverFirst()
		return nil
	}
	return m
}

// outcome is the output of a child process.
type outcome struct {
	// ended are the results of the acts that returned, by index: nil for success.
	ended map[int]error
	// killed: by itself. Otherwise faultPoints is the number of its fault points.
	killed      bool
	faultPoints int
	// journal lists its changes of the disk.
	journal []change
}

// spawn runs the acts in a child process.
func (m *Machine) spawn(t *testing.T, o childSpec) outcome {
	t.Helper()
	if m.parts.mps != nil || m.health != nil {
		return m.spawnInside(t, o)
	}
	o.Root, o.Library, o.StateDir, o.CDIDir, o.BootID, o.GPUs = m.root, m.library, m.StateDir, m.CDIDir, m.BootID(), m.gpus
	o.Layout, o.LayoutChanges, o.FakeTime, o.NullFamily, o.Profiled, o.Epoch = m.parts.layout, m.layoutChanges, m.fakeTime, m.nullFamily, m.profiled, m.epoch
	o.Journal = filepath.Join(t.TempDir(), "journal")
	text, err := json.Marshal(o)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GOGC=off") // the process is too short-lived for garbage collections
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	result := outcome{ended: map[int]error{}}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, isStatus := exit.Sys().(syscall.WaitStatus)
		result.killed = isStatus && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if err != nil && !result.killed {
		require.NoError(t, err, stderr.String())
	}
	result.read(&stdout)
	result.journal = readJournal(t, o.Journal)
	return result
}

// read parses the output of the child.
func (r *outcome) read(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		r.readLine(lines.Text())
	}
}

// readLine parses a line: a result, the number of fault points, or output of the testing package.
func (r *outcome) readLine(line string) {
	word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	number, why, _ := strings.Cut(rest, " ")
	i, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	switch word {
	case "did":
		r.ended[i] = nil
	case "failed":
		r.ended[i] = errors.New(why)
	case "faultpoints":
		r.faultPoints = i
	}
}

func readJournal(t *testing.T, file string) (journal []change) {
	t.Helper()
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(data))
	for decoder.More() {
		var c change
		require.NoError(t, decoder.Decode(&c))
		journal = append(journal, c)
	}
	return journal
}
