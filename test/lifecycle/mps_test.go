package lifecycle

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// insideKill counts the fault points of a process of this program, makes some fail, and stops the process at one of them: none of its
// goroutines passes another fault point.
type insideKill struct {
	spec    childSpec
	journal *journal

	mu          sync.Mutex
	serving     bool
	faultPoints int
	sites       map[string]int
	killed      bool
	// failed: a fault point has failed, so that a reconciler may have to act again later.
	failed bool
}

func (k *insideKill) faultPoint(site string, effect func() error) error {
	k.mu.Lock()
	if k.killed {
		k.mu.Unlock()
		runtime.Goexit()
	}
	counted := (k.serving || k.spec.Early) && !readOnly(site)
	if counted {
		k.faultPoints++
	}
	k.sites[site]++
	at := k.faultPoints
	last, refused := counted && at == k.spec.KillAt, k.sites[site] == k.spec.Refuse[site]
	k.killed = last
	k.mu.Unlock()
	k.mark(counted, change{Call: reached, Path: site, At: at})
	if last && !k.spec.Late {
		runtime.Goexit()
	}
	lost := k.spec.GPUsLost && strings.HasSuffix(site, "ComputeMode")
	if refused || lost {
		k.mu.Lock()
		k.failed = true
		k.mu.Unlock()
	}
	err := errRefused
	switch {
	case lost:
		err = gpu.ErrLost
	case !refused:
		err = effect()
	}
	k.mark(counted, change{Call: passed, Path: site, At: at})
	if last {
		runtime.Goexit()
	}
	return err
}

// mark stores a counted fault point, before or after its effect.
func (k *insideKill) mark(counted bool, c change) {
	if counted {
		k.journal.mark(c)
	}
}

func (k *insideKill) ended() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

// disturbed reports whether a reconciler that returns may not have acted.
func (k *insideKill) disturbed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed || k.failed
}

// spawnInside runs the acts in a process of this program, and stops when the process is killed.
func (m *Machine) spawnInside(t *testing.T, o childSpec) outcome {
	t.Helper()
	result := outcome{ended: map[int]error{}}
	m.inMachineTime(t, func(t *testing.T) {
		written := &journal{machine: m, write: func(c change) { result.journal = append(result.journal, c) }}
		kill := &insideKill{spec: o, journal: written, sites: map[string]int{}}
		if m.parts.mps != nil {
			m.parts.mps.ended = kill.disturbed
			defer func() { m.parts.mps.ended = nil }()
		}
		w := Wiring{FaultPoint: kill.faultPoint, CallTimeout: o.CallTimeout, CleanupAfter: 2 * time.Minute, journal: written.add}
		var p *Process
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			var err error
			if p, err = m.Start(t.Context(), w); kill.ended() || err != nil {
				if !kill.ended() {
					t.Error(err)
				}
				return
			}
			kill.mu.Lock()
			kill.serving = true
			kill.mu.Unlock()
			m.actInside(t.Context(), p, kill, &result)
		}()
		<-exited
		result.killed, result.faultPoints = kill.ended(), kill.faultPoints
		if p != nil {
			require.NoError(t, p.Close())
		}
	})
	return result
}

// actInside runs the acts in order, some concurrently with the next one.
func (m *Machine) actInside(ctx context.Context, p *Process, kill *insideKill, result *outcome) {
	var mu sync.Mutex
	var beside sync.WaitGroup
	defer beside.Wait()
	for i, act := range kill.spec.Acts {
		one := func() {
			err := m.act(ctx, p, act)
			if kill.ended() {
				runtime.Goexit()
			}
			line := resultLine(i, err)
			mu.Lock()
			defer mu.Unlock()
			result.readLine(line)
			kill.journal.mark(change{Call: reported, Data: []byte(line)})
		}
		if act.Beside {
			beside.Go(one)
			continue
		}
		one()
		beside.Wait()
		if kill.ended() {
			return
		}
	}
}

// newMPSMachine returns a machine with an MPS service.
func newMPSMachine(t *testing.T) *Machine {
	t.Helper()
	m, err := modelledMachine(t.TempDir(), mixedNode(0))
	require.NoError(t, err)
	m.withMPS()
	return m
}

// allMPSScenarios are the scenarios with one layout and the scenarios of layout changes.
var allMPSScenarios = of("mps", slices.Concat(mpsScenarios, mpsLayoutScenarios))

// selectedMPSScenarios returns the scenarios of this run.
func selectedMPSScenarios() (list []*scenario) {
	for i := range allMPSScenarios {
		if s := &allMPSScenarios[i]; !s.long || full() {
			list = append(list, s)
		}
	}
	return list
}

// TestMPS_ProcessKilled_Recovers kills a process before and after each fault point of each scenario, and cuts the power there.
func TestMPS_ProcessKilled_Recovers(t *testing.T) {
	t.Parallel()
	for _, s := range selectedMPSScenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			killed, cut := newMPSMachine(t), newMPSMachine(t)
			require.NoError(t, cut.countFromStrange())
			killed.killEverywhere(t, s, childSpec{Acts: s.acts, Refuse: s.refuse, Early: s.early, GPUsLost: s.gpusLost}, cut)
		})
	}
}

// mpsChanges are the sites that change daemons and compute modes.
func mpsChanges(site string) bool {
	return site == "mps.Start" || site == "mps.StartNew" || site == "mps.Ensure" || site == "mps.Stop" || site == "mps.RestoreLimits" || site == "nvml.SetComputeMode"
}

// mpsFaults are the ways in which the service and the driver fail.
var mpsFaults = []fault{
	{name: faultOnce, err: syscall.EIO, of: anySite},
	{name: "for ever", err: syscall.EIO, of: anySite, forEver: true},
	{name: "the answer is lost", err: gpu.ErrMPSUnavailable, of: mpsChanges, late: true},
	{name: "answers are lost for ever", err: gpu.ErrMPSUnavailable, of: mpsChanges, late: true, forEver: true},
	{name: "the GPU is lost", err: gpu.ErrLost, of: func(site string) bool { return strings.HasPrefix(site, "nvml.SetComputeMode") }, forEver: true},
	{name: "disk full", err: syscall.ENOSPC, of: diskAllocations, forEver: true},
	{name: "read-only disk", err: syscall.EROFS, of: diskChanges, forEver: true},
}

// Each fault point of the shorter scenarios fails, also after it took effect. Calls may fail; nothing is left when the failures end.
func TestMPS_EveryFaultPointFails_Recovers(t *testing.T) {
	t.Parallel()
	for _, how := range selectedFaults(mpsFaults) {
		for _, s := range selectedMPSScenarios() {
			t.Run(how.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				t.Logf("%d fault points", newMPSMachine(t).failEverywhere(t, s, how))
			})
		}
	}
}

// Claims of two processes, as in a rolling update, share one GPU: it runs one daemon as long as a claim needs it, and none afterwards.
func TestMPS_TwoProcesses_OneDaemon(t *testing.T) {
	t.Parallel()
	m := newMPSMachine(t)
	m.setUp(t, &scenario{})
	m.inMachineTime(t, func(t *testing.T) {
		var processes []*Process
		for range 2 {
			p, err := m.Start(t.Context(), Wiring{})
			require.NoError(t, err)
			processes = append(processes, p)
		}
		for round := range 10 {
			var claims sync.WaitGroup
			for n := range 3 {
				claims.Go(func() {
					act := sharesMPS(fmt.Sprintf("uid-%d-%d", round, n), 0)
					for step, act := range []Act{act, connects(act.Claim), unprepares(act.Claim)} {
						if err := m.act(t.Context(), processes[(round+n+step)%2], act); err != nil {
							t.Errorf("%s %s: %v", act.Call, act.Claim, err)
						}
					}
				})
			}
			claims.Wait()
			require.NoError(t, m.CheckEmpty(t.Context()))
		}
		for _, p := range processes {
			require.NoError(t, p.Close())
		}
	})
}
