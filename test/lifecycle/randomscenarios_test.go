package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// concurrentProcesses runs four processes on the same GPUs, as in a rolling update: no claim is lost, no effect is doubled, no device has
// two owners, and one process leads at a time.
func concurrentProcesses(t *testing.T, m *Machine) {
	m.setUp(t, &scenario{processes: true})
	owners := t.TempDir()
	var processes sync.WaitGroup
	for i := range 2 {
		processes.Go(func() {
			m.spawn(t, childSpec{CallTimeout: concurrentTimeout, Concurrent: &concurrentClaims{Claims: 100, First: 100 * i, Owners: owners, Leads: true}})
		})
		processes.Go(func() {
			m.spawn(t, childSpec{CallTimeout: concurrentTimeout, Concurrent: &concurrentClaims{Claims: 100, First: 1000 + 100*i, Owners: owners}})
		})
	}
	processes.Wait()
	require.NoError(t, m.CheckEmpty(t.Context()))
}

// soakTime is the duration of random scenarios, from LIFECYCLE_SOAK; a fixed number of them if it is not set.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("LIFECYCLE_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "LIFECYCLE_SOAK is a duration, such as 30m")
	return d
}

// minRandomScenarios is the minimum number of random scenarios.
const minRandomScenarios = 12

// killAtRandom kills processes at random fault points of random scenarios. A failed scenario can be run again alone.
func killAtRandom(t *testing.T, killed, cut *Machine) {
	end := time.Now().Add(soakTime(t))
	first := uint64(0)
	if soakTime(t) > 0 {
		first = rand.Uint64()
	}
	alone := seeds(t, 0)
	for i := uint64(0); i < minRandomScenarios || time.Now().Before(end); i++ {
		seed := first + i
		if len(alone) > 0 {
			seed = alone[0]
		}
		t.Run(fmt.Sprintf("LIFECYCLE_SEED=%d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := randomScenario(random)
			killed.runKilled(t, s, childSpec{
				Acts: s.acts, Refuse: s.refuse, KillAt: 1 + random.IntN(40), Late: random.IntN(2) == 0, Early: random.IntN(4) == 0, CountReads: true,
				CallTimeout: shortTimeout,
			}, cut, map[string]bool{})
		})
		if t.Failed() || len(alone) > 0 {
			return
		}
	}
}

// randomScenario returns a random sequence of calls that a scheduler and a kubelet could make.
func randomScenario(random *rand.Rand) *scenario {
	sites := []string{
		"disk.Write records", "disk.Rename records", "disk.SyncDir records", "disk.Remove records", "disk.Write specs",
		"disk.Remove specs", "step.Do accounting", "step.Do persistence", "step.Undo persistence", "step.Undo accounting",
		"nvml.SetMIGMode", "nvml.CreateInstance", "nvml.CreateComputeInstance", "nvml.DestroyComputeInstance", "nvml.DestroyInstance",
	}
	s := &scenario{anyOutcome: true, refuse: map[string]int{}}
	for range random.IntN(3) {
		s.refuse[sites[random.IntN(len(sites))]] = 1 + random.IntN(4)
	}
	var prepared []Act
	for n := range 4 + random.IntN(8) {
		switch i := random.IntN(max(len(prepared), 1)); random.IntN(10) {
		case 0:
			s.acts = append(s.acts, recovers)
		case 1:
			s.acts = append(s.acts, collectsGarbage)
		case 2, 3, 4:
			if len(prepared) > 0 {
				s.acts = append(s.acts, unprepares(prepared[i].Claim))
				prepared = slices.Delete(prepared, i, i+1)
			}
		case 5:
			if len(prepared) > 0 {
				s.acts = append(s.acts, prepared[i])
			}
		default:
			act := randomPrepare(random, fmt.Sprintf("claim-%d", n), prepared)
			if act.Monitor || len(act.GPUs)+len(act.MIGDevices) > 0 {
				prepared, s.acts = append(prepared, act), append(s.acts, act)
			}
		}
	}
	return s
}

// randomPrepare prepares a claim with GPUs or MIG devices that no other claim uses.
func randomPrepare(random *rand.Rand, claim string, prepared []Act) Act {
	act := prepares(claim)
	taken := func(taking func(other Act) bool) bool { return slices.ContainsFunc(prepared, taking) }
	for _, i := range random.Perm(5)[:1+random.IntN(2)] {
		if !taken(func(other Act) bool { return slices.Contains(other.GPUs, i) || other.usesMIGOf(i) }) {
			act.GPUs = append(act.GPUs, i)
		}
	}
	if random.IntN(2) == 0 {
		act.GPUs = nil
		for _, i := range random.Perm(5)[:1+random.IntN(3)] {
			s := []MIGDevice{small, medium, large, otherSmall, otherLarge}[i]
			if !taken(func(other Act) bool {
				return slices.Contains(other.GPUs, s.GPU) || slices.Contains(other.MIGDevices, s)
			}) {
				act.MIGDevices = append(act.MIGDevices, s)
			}
		}
	}
	if random.IntN(4) == 0 {
		act = act.withMonitor()
	}
	if len(act.MIGDevices) == 0 {
		act.Effects = AllEffects[:random.IntN(len(AllEffects)+1)]
	}
	return act
}

// usesMIGOf reports whether the act requests a MIG device of that GPU.
func (a Act) usesMIGOf(ordinal int) bool {
	return slices.ContainsFunc(a.MIGDevices, func(s MIGDevice) bool { return s.GPU == ordinal })
}
