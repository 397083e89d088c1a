package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// randomMPSScenarios is the number of random scenarios with MPS shares, and longRandomMPSScenarios their number with FULL=1.
	randomMPSScenarios, longRandomMPSScenarios = 16, 400
	// shareCount is the number of MPS shares of a GPU, gpuCount the number of the machine's GPUs.
	shareCount, gpuCount = 3, 5
)

// TestMPS_RandomScenariosKilled_Recovers kills processes, and cuts the power, at random fault points of random scenarios: shares come and go on
// several GPUs while control daemons die, the service is interrupted or vanishes, and the driver forgets modes, is replaced or loses GPUs.
func TestMPS_RandomScenariosKilled_Recovers(t *testing.T) {
	t.Parallel()
	killed, cut := newMPSMachine(t), newMPSMachine(t)
	require.NoError(t, cut.countFromStrange())
	count := uint64(randomMPSScenarios)
	if full() {
		count = longRandomMPSScenarios
	}
	for _, seed := range seeds(t, count) {
		t.Run(fmt.Sprintf("LIFECYCLE_SEED=%d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			s := randomMPSScenario(random)
			killed.runKilled(t, s, childSpec{
				Acts: s.acts, Refuse: s.refuse, KillAt: 1 + random.IntN(12*len(s.acts)), Late: random.IntN(2) == 0, Early: random.IntN(4) == 0, GPUsLost: s.gpusLost,
			}, cut, map[string]bool{})
		})
		if t.Failed() {
			return
		}
	}
}

// mpsEvents are events of control daemons, the service and the driver.
var mpsEvents = [][]Act{
	{daemonsDie}, {daemonsDie, reconcilesMPS}, {serviceInterrupted}, {serviceVanishes}, {serviceVanishes, reconcilesMPS}, {serviceResumes},
	{serviceResumes, reconcilesMPS}, {driverReplaced}, {modesReset}, {reconcilesMPS}, {recovers}, {collectsGarbage}, {timePasses(3 * time.Minute)},
}

// randomMPSScenario returns a random sequence of calls, of programs that connect, and of failures.
func randomMPSScenario(random *rand.Rand) *scenario {
	sites := []string{"mps.StartNew", "mps.Start", "mps.Ensure", "mps.Stop", "nvml.SetComputeMode", "disk.Write records", "disk.Rename records", "disk.Write specs"}
	s := &scenario{anyOutcome: true, refuse: map[string]int{}, gpusLost: random.IntN(8) == 0}
	for range random.IntN(3) {
		s.refuse[sites[random.IntN(len(sites))]] = 1 + random.IntN(4)
	}
	var prepared []Act
	undisturbed := true // a claim whose daemon has died is undone first when it is prepared again
	for n := range 8 + random.IntN(20) {
		if random.IntN(4) == 0 {
			s.acts = append(s.acts, mpsEvents[random.IntN(len(mpsEvents))]...)
			undisturbed = false
			continue
		}
		i := random.IntN(max(len(prepared), 1))
		switch what := random.IntN(10); {
		case what < 5 || len(prepared) == 0:
			if act := randomShares(random, fmt.Sprintf("claim-%d", n), prepared); len(act.MPS)+len(act.GPUs) > 0 {
				prepared, s.acts = append(prepared, act), append(s.acts, act)
			}
		case what < 7:
			s.acts = append(s.acts, connects(prepared[i].Claim))
		case what < 8 && undisturbed:
			s.acts = append(s.acts, prepared[i])
		default:
			s.acts = append(s.acts, unprepares(prepared[i].Claim))
			prepared = slices.Delete(prepared, i, i+1)
		}
	}
	if len(s.acts) == 0 {
		s.acts = []Act{sharesMPS("claim", 0), unprepares("claim")}
	}
	return s
}

// randomShares prepares a claim with MPS shares of one or two GPUs, or with a whole GPU, sometimes for several programs. No other claim
// uses these.
func randomShares(random *rand.Rand, claim string, prepared []Act) Act {
	shares, whole := map[int]int{}, map[int]bool{}
	for _, other := range prepared {
		for _, i := range other.MPS {
			shares[i]++
		}
		for _, i := range other.GPUs {
			whole[i] = true
		}
	}
	if i := random.IntN(gpuCount); random.IntN(5) == 0 {
		if shares[i] > 0 || whole[i] {
			return Act{}
		}
		act := prepares(claim, i)
		if random.IntN(2) == 0 {
			act = act.withMPS()
		}
		return act
	}
	act := sharesMPS(claim)
	for range 1 + random.IntN(2) {
		// Most shares are of the first GPUs, so that several claims share one.
		if i := min(random.IntN(gpuCount), random.IntN(gpuCount)); !whole[i] && shares[i] < shareCount {
			shares[i]++
			act.MPS = append(act.MPS, i)
		}
	}
	return act
}
