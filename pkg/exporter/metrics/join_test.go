package metrics_test

import (
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	usedByContainer        = "prism_container_gpu_memory_used_bytes"
	utilizationByContainer = "prism_container_gpu_utilization_ratio"
	unattributed           = "prism_gpu_unattributed_memory_bytes"
	foreign                = "prism_gpu_foreign_processes"
)

// join is one GPU with allocations.
func join(g *metrics.GPU, list ...metrics.Allocation) *metrics.Joined {
	return metrics.Join(&metrics.Snapshot{GPUs: []*metrics.GPU{g}}, &metrics.Allocations{List: list}, metrics.Exporter{Node: "node-1"})
}

// timeSliced is a T4 with two shares; 9 GiB are in use.
func timeSliced(processes ...metrics.Process) (*metrics.GPU, []metrics.Allocation) {
	g := board(0, "Tesla T4", metrics.Turing)
	memory(&g.Values, 16*gib, 9*gib)
	g.Processes = processes
	return g, []metrics.Allocation{
		allocation("one", g.Identity.UUID, "", "s1", container("one", "main")),
		allocation("two", g.Identity.UUID, "", "s2", container("two", "main")),
	}
}

func TestJoin_ExclusiveDevice_ContainerHasDeviceValues(t *testing.T) {
	families := native(t, metrics.Join(node()))
	for pod, used := range map[string]float64{"train": 8 * gib, "slice": 2 * gib} {
		assert.InDelta(t, used, value(t, families, usedByContainer, "pod", pod), 0)
		assert.InDelta(t, 0.14, value(t, families, utilizationByContainer, "pod", pod), 0)
	}
}

func TestJoin_ClaimOfTwoContainersOnMIG_MemoryByProcessAndNoUtilization(t *testing.T) {
	families := native(t, metrics.Join(node()))
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "pair", "container", "a"), 0)
	assert.InDelta(t, 2*gib, value(t, families, usedByContainer, "pod", "pair", "container", "b"), 0)
	assert.Empty(t, samples(families, utilizationByContainer, "pod", "pair"))
}

func TestJoin_Shares_ByProcess(t *testing.T) {
	g, list := timeSliced(process(1, "one/main", gib, 0.25), process(2, "one/main", gib, 0.5), process(3, "two/main", gib, 0.125))
	families := native(t, join(g, list...))
	assert.InDelta(t, 2*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.InDelta(t, 0.75, value(t, families, utilizationByContainer, "pod", "one"), 0)
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "two"), 0)
	assert.InDelta(t, 6*gib, value(t, families, unattributed), 0)
	assert.Zero(t, value(t, families, foreign))
}

func TestJoin_ShareWithoutProcesses_IsIdle(t *testing.T) {
	g, list := timeSliced()
	families := native(t, join(g, list...))
	assert.Zero(t, value(t, families, usedByContainer, "pod", "one"))
	assert.Zero(t, value(t, families, utilizationByContainer, "pod", "one"))
}

func TestJoin_ProcessInSeveralLists_CountsOnce(t *testing.T) {
	p := process(1, "one/main", gib, 0.25)
	g, list := timeSliced(p, p)
	families := native(t, join(g, list...))
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.InDelta(t, 0.25, value(t, families, utilizationByContainer, "pod", "one"), 0)
}

func TestJoin_MPSServer_Unattributed(t *testing.T) {
	server := process(9, "mps/mps", gib, 0.5)
	server.ServesClients = true
	g, list := timeSliced(process(1, "one/main", gib, 0.25), server)
	list[1].ThroughServer = true
	families := native(t, join(g, list...))
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.InDelta(t, 8*gib, value(t, families, unattributed), 0)
	assert.Zero(t, value(t, families, foreign), "an MPS server works for the containers")
}

// TestJoin_NamedAsMPSServer_Attributed: a process can choose its name.
func TestJoin_NamedAsMPSServer_Attributed(t *testing.T) {
	named, other := process(9, "one/main", 2*gib, 0.5), process(10, "elsewhere", gib, 0.5)
	named.ServesClients, other.ServesClients = true, true
	g, list := timeSliced(named, other)
	families := native(t, join(g, list...))
	assert.InDelta(t, 2*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.InDelta(t, 1, value(t, families, foreign), 0, "no claim has the GPU with MPS")

	list[0].ThroughServer = true
	families = native(t, join(g, list...))
	assert.InDelta(t, 2*gib, value(t, families, usedByContainer, "pod", "one"), 0, "a container of a claim has no MPS server")

	elsewhere := allocation("else", gpuID(5), "", "", metrics.Container{Namespace: "team", Pod: "else", Name: "main", ID: "elsewhere"})
	families = native(t, join(g, append(list, elsewhere)...))
	assert.InDelta(t, 1, value(t, families, foreign), 0, "nor one of another GPU's claim")
}

func TestJoin_ForeignProcesses_CountedAndUnattributed(t *testing.T) {
	for name, of := range map[string]string{"host": "", "unknown container": "elsewhere"} {
		t.Run(name, func(t *testing.T) {
			g, list := timeSliced(process(1, of, 3*gib, 0.5))
			families := native(t, join(g, list...))
			assert.InDelta(t, 1, value(t, families, foreign), 0)
			assert.InDelta(t, 9*gib, value(t, families, unattributed), 0)

			g.Processes = append(g.Processes, process(2, "one/main", gib, 0.5))
			families = native(t, join(g, allocation("one", g.Identity.UUID, "", "", container("one", "main"))))
			assert.InDelta(t, 6*gib, value(t, families, usedByContainer), 0, "an exclusive container does not have a foreign process's memory")
			assert.InDelta(t, 3*gib, value(t, families, unattributed), 0)
		})
	}
}

func TestJoin_ProcessOfContainerOnAnotherGPU_Foreign(t *testing.T) {
	g := board(0, "Tesla T4", metrics.Turing)
	g.Processes = []metrics.Process{process(1, "one/main", gib, 0)}
	early := allocation("early", g.Identity.UUID, "", "")
	families := native(t, join(g, early, allocation("one", gpuID(5), "", "", container("one", "main"))))
	assert.InDelta(t, 1, value(t, families, foreign), 0)
}

func TestJoin_RuntimeAway_NeitherForeignNorWrongNames(t *testing.T) {
	unknown := container("one", "main")
	unknown.ID = ""
	g, _ := timeSliced(process(1, "", 3*gib, 0.5))
	families := native(t, join(g, allocation("one", g.Identity.UUID, "", "", unknown)))
	assert.Zero(t, value(t, families, foreign))
	assert.InDelta(t, 9*gib, value(t, families, usedByContainer, "pod", "one"), 0, "an exclusive device needs no process")

	families = native(t, join(g, allocation("one", g.Identity.UUID, "", "s1", unknown)))
	assert.Empty(t, samples(families, usedByContainer))
	assert.InDelta(t, 9*gib, value(t, families, unattributed), 0)
}

// TestJoin_ContainerRestartedWithRuntimeAway_MemoryStays: allocations contain the old id of the container.
func TestJoin_ContainerRestartedWithRuntimeAway_MemoryStays(t *testing.T) {
	g, list := timeSliced(process(1, "", 3*gib, 0.5))
	g.Processes[0].Unresolved = true
	families := native(t, join(g, allocation("one", g.Identity.UUID, "", "", container("one", "main"))))
	assert.Zero(t, value(t, families, foreign))
	assert.InDelta(t, 9*gib, value(t, families, usedByContainer, "pod", "one"), 0)

	families = native(t, join(g, list...))
	assert.Zero(t, value(t, families, foreign))
	assert.Zero(t, value(t, families, usedByContainer, "pod", "one"))
	assert.InDelta(t, 9*gib, value(t, families, unattributed), 0)
}

func TestJoin_ProcessNotInProc_NotForeign(t *testing.T) {
	g, list := timeSliced(process(1, "", gib, 0.5))
	g.Processes[0].ProcessIdentity = metrics.ProcessIdentity{}
	families := native(t, join(g, list...))
	assert.Zero(t, value(t, families, foreign))
	assert.InDelta(t, 9*gib, value(t, families, unattributed), 0)
}

// TestJoin_ContainerRestarted_NotForeignBeforeTheRuntimeAnswers: the id of the new container is still unknown.
func TestJoin_ContainerRestarted_NotForeignBeforeTheRuntimeAnswers(t *testing.T) {
	g, _ := timeSliced(process(1, "", 3*gib, 0.5))
	g.Processes[0].Unresolved = true
	families := native(t, join(g, allocation("one", g.Identity.UUID, "", "", container("one", "main"))))
	assert.Zero(t, value(t, families, foreign))
	assert.InDelta(t, 9*gib, value(t, families, usedByContainer, "pod", "one"), 0)
}

func TestJoin_BeforeTheFirstRound_PageOfTheExporter(t *testing.T) {
	families := native(t, metrics.Join(nil, nil, metrics.Exporter{Version: "1.2.3"}))
	assert.InDelta(t, 1, value(t, families, "prism_exporter_build_info", "version", "1.2.3"), 0)
	assert.NotContains(t, families, "prism_gpu_up")
}

func TestJoin_HiddenProcesses_NoValuesOfShares(t *testing.T) {
	g, list := timeSliced()
	g.ProcessesHidden = true
	families := native(t, join(g, list...))
	assert.Empty(t, samples(families, usedByContainer))
	assert.Empty(t, samples(families, foreign))
	assert.InDelta(t, 1, value(t, families, "prism_exporter_processes_hidden"), 0)
	assert.InDelta(t, 9*gib, value(t, families, unattributed), 0, "all of what is in use")
}

func TestJoin_SharedMemoryCountsTwice_ContainersNotAboveUsed(t *testing.T) {
	g, list := timeSliced(process(1, "one/main", 8*gib, 0), process(2, "two/main", 7*gib, 0))
	families := native(t, join(g, list...))
	assertSums(t, families, g.Identity.UUID)
	assert.Greater(t, value(t, families, usedByContainer, "pod", "one"), value(t, families, usedByContainer, "pod", "two"))
}

// TestJoin_SharedMemoryOnMIGDevice_ContainersNotAboveItsUsed: more memory of the GPU is in use.
func TestJoin_SharedMemoryOnMIGDevice_ContainersNotAboveItsUsed(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, 2*gib)}
	for i, of := range []string{"one/a", "one/b"} {
		p := process(uint32(i+1), of, 2*gib, math.NaN())
		p.MIG = migID(1)
		g.Processes = append(g.Processes, p)
	}
	families := native(t, join(g, allocation("one", g.Identity.UUID, migID(1), "", container("one", "a"), container("one", "b"))))
	for _, name := range []string{"a", "b"} {
		assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "container", name), 0)
	}
}

// TestJoin_MIGAllocatesWithinRound_ContainersNotAboveUsed: the GPU's memory was read before the memory of the MIG devices.
func TestJoin_MIGAllocatesWithinRound_ContainersNotAboveUsed(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	memory(&g.Values, 80*gib, 4*gib)
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, 2*gib), instance(2, 8, metrics.Hopper, 6*gib)}
	families := native(t, join(g, allocation("one", g.Identity.UUID, migID(1), "", container("one", "main")),
		allocation("two", g.Identity.UUID, migID(2), "", container("two", "main"))))
	assertSums(t, families, g.Identity.UUID)
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.InDelta(t, 3*gib, value(t, families, usedByContainer, "pod", "two"), 0)
	assert.InDelta(t, 6*gib, value(t, families, "prism_mig_memory_used_bytes", "mig_uuid", string(migID(2))), 0, "as the driver says")
}

// assertSums compares the memory of containers plus unattributed memory with the memory in use.
func assertSums(t *testing.T, families map[string]*dto.MetricFamily, of gpu.UUID) {
	t.Helper()
	sum := value(t, families, unattributed, "gpu_uuid", string(of))
	require.False(t, math.IsNaN(sum))
	for _, m := range samples(families, usedByContainer, "gpu_uuid", string(of)) {
		sum += m.GetGauge().GetValue()
	}
	assert.LessOrEqual(t, sum, value(t, families, "prism_gpu_memory_used_bytes", "gpu_uuid", string(of)))
}

func TestJoin_EveryGPU_ContainersAndRestAtMostUsed(t *testing.T) {
	families := native(t, metrics.Join(node()))
	for i := range 3 {
		assertSums(t, families, gpuID(i))
	}
}

func TestJoin_UnknownProcessValues_NoSeries(t *testing.T) {
	nan := math.NaN()
	g, list := timeSliced(process(1, "one/main", nan, nan), process(2, "one/main", gib, nan), process(3, "two/main", gib, 0.5))
	families := native(t, join(g, list...))
	assert.Empty(t, samples(families, usedByContainer, "pod", "one"), "a part of a sum is no sum")
	assert.Empty(t, samples(families, utilizationByContainer, "pod", "one"))
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "two"), 0)
}

func TestJoin_MIGDeviceRecreated_OldPodIsGone(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, gib)}
	old := native(t, join(g, allocation("old", g.Identity.UUID, migID(1), "", container("old", "main"))))
	now := native(t, join(g, allocation("new", g.Identity.UUID, migID(1), "", container("new", "main"))))
	for _, name := range []string{usedByContainer, utilizationByContainer, "prism_gpu_allocation_info"} {
		assert.Len(t, samples(old, name, "pod", "old"), 1, name)
		assert.Empty(t, samples(now, name, "pod", "old"), name)
		assert.Len(t, samples(now, name, "pod", "new"), 1, name)
	}
}

func TestJoin_TwoMIGDevicesOfOneGPUInstance_ValuesOnce(t *testing.T) {
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Identity.MIGMode = true
	g.MIGDevices = []*metrics.MIGDevice{instance(1, 7, metrics.Hopper, 4*gib), instance(2, 7, metrics.Hopper, 4*gib)}
	g.MIGDevices[1].ComputeInstance = 1
	one := process(1, "one/main", gib, math.NaN())
	one.MIG = migID(1)
	g.Processes = []metrics.Process{one}
	j := join(g, allocation("one", g.Identity.UUID, migID(1), "", container("one", "main")))
	families := native(t, j)
	assert.Len(t, samples(families, "prism_mig_memory_used_bytes"), 1)
	assert.Len(t, samples(families, "prism_mig_info"), 2)
	assert.InDelta(t, 1*gib, value(t, families, usedByContainer, "pod", "one"), 0, "the instance's memory is not this container's alone")
	assert.Len(t, samples(parsed(t, j.AppendDCGM(nil, nil)), "DCGM_FI_DEV_FB_USED"), 1)
}

// TestJoin_GPUStopped_OnlyEventsStay: a GPU that does not respond shows no measured values, but keeps its errors, which may be the cause.
func TestJoin_GPUStopped_OnlyEventsStay(t *testing.T) {
	g, list := timeSliced(process(1, "one/main", gib, 0.5))
	g.Up = false // although other values are still there
	g.XIDs = []metrics.XID{{Code: 79, GPUInstance: -1, Count: 1, Last: at}}
	j := join(g, list...)
	families := native(t, j)
	assert.Zero(t, value(t, families, "prism_gpu_up"))
	assert.InDelta(t, 1, value(t, families, "prism_gpu_xid_errors_total"), 0)
	for f := range metrics.FieldCount {
		if _, measured := g.Values.Get(f); measured && metrics.Events.Has(f) {
			assert.Contains(t, families, metrics.Table[f].GPU)
		} else if metrics.Table[f].GPU != "" {
			assert.NotContains(t, families, metrics.Table[f].GPU)
		}
	}
	for _, name := range []string{usedByContainer, utilizationByContainer, foreign, unattributed} {
		assert.NotContains(t, families, name)
	}
	assert.Len(t, samples(families, "prism_gpu_allocation_info"), 2)
	page := parsed(t, j.AppendDCGM(nil, nil))
	assert.InDelta(t, 79, value(t, page, "DCGM_FI_DEV_XID_ERRORS", "UUID", string(g.Identity.UUID), "device", "nvidia0"), 0)
	assert.Contains(t, page, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
	for name := range page {
		assert.Regexp(t, "^DCGM_(FI_DEV_(XID|ECC|RETIRED|ROW)|FI_DEV_.*REMAPPED_ROWS)", name)
	}
}

func TestJoin_PodRecreatedUnderItsName_OneContainer(t *testing.T) {
	before, after := container("one", "main"), container("one", "main")
	before.PodUID, before.ID = "gone", "gone"
	g, _ := timeSliced(process(1, "one/main", gib, 0.5), process(2, "gone", gib, 0.25))
	families := native(t, join(g, allocation("one", g.Identity.UUID, "", "s1", before, after)))
	assert.InDelta(t, 2*gib, value(t, families, usedByContainer, "pod", "one"), 0)
	assert.Len(t, samples(families, "prism_gpu_allocation_info"), 1)
}
