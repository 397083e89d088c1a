package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPerfmon_TwoPodsForOneGPU_SecondWaits: a GPU and its performance counters are allocated together by a constraint, another claim for
// the counters waits until they are released, and containers see in a variable whose counters they have.
func TestPerfmon_TwoPodsForOneGPU_SecondWaits(t *testing.T) {
	ns := exclusive(t)
	n, err := ns.advertised("perfmon")
	require.NoError(t, err)
	require.Zero(t, n, "none is configured yet")
	ns.withValue(t, "deviceClasses.perfmonDevices=PerGPU")

	ns.apply("perfmon/pod.yaml")
	grants := ns.grantedTo(ns.ready("counters"), "gpu")
	require.Len(t, grants, 2)
	whole, counters := forRequest(t, grants, "gpu"), forRequest(t, grants, "counters")
	require.Len(t, whole, 1)
	require.Len(t, counters, 1)
	assert.Equal(t, "perfmon", counters[0].Type)
	assert.Equal(t, whole[0].UUID, counters[0].UUID, "of one GPU")
	ns.sees("counters", "main", whole...)
	ns.hasCounters("counters", whole[0].UUID)

	ns.create(workload{name: "second", ref: "counters", request: request{
		class:     "perfmon." + driverName,
		selectors: []string{fmt.Sprintf("device.attributes[%q].parentUUID == %q", driverName, whole[0].UUID)},
	}})
	ns.waits("second")
	ns.deleteWithClaim("counters", "gpu")
	ns.ready("second")
	ns.hasCounters("second", whole[0].UUID)
	ns.seesNothing("second", "main")
}

// hasCounters checks that the variables of a pod name the performance counters of one GPU.
func (ns *namespace) hasCounters(pod, uuid string) {
	ns.t.Helper()
	variables := strings.Fields(ns.do("exec", pod, "--", "sh", "-c", "env | grep ^PRISM_PERFMON_"))
	require.Len(ns.t, variables, 1)
	_, value, _ := strings.Cut(variables[0], "=")
	assert.Equal(ns.t, uuid, value)
}
