package lifecycle

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

var (
	polls    = Act{Call: "poll"}
	repaired = Act{Call: "repair"}
)

func loses(gpus ...int) Act { return Act{Call: "lose", GPUs: gpus} }

// remaps: the row remapper has no rows left.
func remaps(gpus ...int) Act { return Act{Call: "remap", GPUs: gpus} }

// wantsReset: the driver asks for a reset of the GPU.
func wantsReset(gpus ...int) Act { return Act{Call: "act", GPUs: gpus, Value: 1} }

func xid(ordinal int) Act { return Act{Call: "xid", GPUs: []int{ordinal}, Value: taintingXID} }

func maintains(gpus ...int) Act { return Act{Call: "maintain", GPUs: gpus} }

// releaseTime is the length of releases.
const releaseTime = 2 * time.Minute

func releases(gpus ...int) Act { return Act{Call: "release", GPUs: gpus, For: releaseTime} }

// resets is refused while a session is open.
func resets(gpus ...int) Act { return Act{Call: "reset", GPUs: gpus} }

// passesRelease waits for the end of releases.
var passesRelease = Act{Call: "follow", For: releaseTime}

func heals(gpus ...int) Act { return Act{Call: "heal", GPUs: gpus} }

func undrains(gpus ...int) Act { return Act{Call: "undrain", GPUs: gpus} }

var healthScenarios = of("health", []scenario{
	{name: "GPUs ask for a reset one after the other", acts: []Act{wantsReset(0), polls, wantsReset(3), polls, repaired, polls, polls, polls}},
	{name: "a GPU is lost and returns", acts: []Act{loses(0), polls, polls, repaired, polls, polls, polls}},
	{name: "GPUs are sick at the start", early: true, then: sickens(wantsReset(0), remaps(3)), acts: []Act{polls}},
	{name: "a GPU was lost before the start", early: true, before: []Act{loses(0), remaps(3), polls}, acts: []Act{polls, repaired, polls, polls, polls}},
	{name: "an XID error is healed", acts: []Act{xid(0), polls, heals(0), polls}},
	{name: "an XID error of before the start is healed", early: true, before: []Act{xid(0), wantsReset(0), polls}, acts: []Act{heals(0), polls}},
	{name: "a GPU is released and reset", acts: []Act{
		wantsReset(0), polls, maintains(0), releases(0), resets(0), passesRelease, polls, polls, polls, undrains(0),
	}},
	{name: "a release ends early", acts: []Act{maintains(0, 1), releases(0, 1), undrains(0), undrains(1)}},
	{name: "a GPU was released before the start", early: true, before: []Act{maintains(0), releases(0)}, acts: []Act{resets(0), passesRelease, undrains(0)}},
	{name: "the findings are damaged", early: true, before: []Act{loses(0), xid(1), polls}, then: damagesHealth, acts: []Act{polls}},
	{name: "the layout of a sick GPU changes", acts: []Act{wantsReset(3), polls, configures(migOnly)}},
	{name: "a claim has a sick GPU", acts: []Act{
		prepares("a", 1), remaps(1), polls, prepares("a", 1), unprepares("a"),
	}},
})

func init() {
	for i := range healthScenarios {
		healthScenarios[i].health, healthScenarios[i].config = true, whole
	}
}

// sickens has acts happen while no process runs.
func sickens(acts ...Act) func(*testing.T, *Machine) {
	return func(t *testing.T, m *Machine) {
		t.Helper()
		for _, act := range acts {
			for _, i := range act.GPUs {
				require.NoError(t, m.health.change(m, i, act))
			}
		}
	}
}

// damagesHealth damages the file with the findings.
func damagesHealth(t *testing.T, m *Machine) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(m.StateDir, healthFile), []byte(plantedHealth), 0o600))
	m.health.planted = true
}

func newHealthMachine(t *testing.T) *Machine {
	t.Helper()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	return m
}

// TestHealth_ProcessKilled_Recovers kills a process before and after each fault point of each scenario, and cuts the power there: no sick
// GPU is published without its taint, taints keep their begin, and sessions are opened again.
func TestHealth_ProcessKilled_Recovers(t *testing.T) {
	t.Parallel()
	for i := range healthScenarios {
		s := &healthScenarios[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			killed, cut := newHealthMachine(t), newHealthMachine(t)
			require.NoError(t, cut.countFromStrange())
			killed.killEverywhere(t, s, childSpec{Acts: s.acts, Early: s.early}, cut)
		})
	}
}

func TestHealth_RunTwice_SameJournal(t *testing.T) {
	t.Parallel()
	for i := range healthScenarios {
		s := &healthScenarios[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runTwice(t, newHealthMachine(t), s, childSpec{Acts: s.acts, Early: s.early})
		})
	}
}

// healthFaults are the ways in which disk, driver and API server fail.
var healthFaults = []fault{
	{name: faultOnce, err: syscall.EIO, of: anySite},
	{name: "for ever", err: syscall.EIO, of: anySite, forEver: true},
	{name: "the GPUs are lost", err: gpu.ErrLost, of: func(site string) bool { return site == "nvml.GPUs" }},
	{name: "disk full", err: syscall.ENOSPC, of: diskAllocations, forEver: true},
	{name: "read-only disk", err: syscall.EROFS, of: diskChanges, forEver: true},
}

// Each fault point fails. Findings may be stored later; sick GPUs are tainted all the same, and nothing is left when the failures end.
func TestHealth_EveryFaultPointFails_Recovers(t *testing.T) {
	t.Parallel()
	for _, how := range selectedFaults(healthFaults) {
		for i := range healthScenarios {
			s := &healthScenarios[i]
			t.Run(how.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				t.Logf("%d fault points", newHealthMachine(t).failEverywhere(t, s, how))
			})
		}
	}
}
