package publish_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// tainted are the taints of each device of the node's pool that has any.
func tainted(n *gpu.Node, rules ...[]publish.TaintRule) map[string][]resourceapi.DeviceTaint {
	opts := publish.Options{DriverName: driverName, NodeName: nodeName, Taints: slices.Concat(rules...)}
	found := map[string][]resourceapi.DeviceTaint{}
	for _, d := range publish.Resources(opts, n).Pools[nodeName].Slices[0].Devices {
		if len(d.Taints) > 0 {
			found[d.Name] = d.Taints
		}
	}
	return found
}

// TestTaints_SeveralRules_EachDeviceHasThoseThatApply in the order of the rules: a draining device is known by pool and name, a device that
// a pending cleanup blocks by its use of the GPU, and a conflict concerns all.
func TestTaints_SeveralRules_EachDeviceHasThoseThatApply(t *testing.T) {
	n := node(t, "h100-80", 2)
	first, second := gpu.Whole{GPU: &n.GPUs[0]}.Name(), gpu.Whole{GPU: &n.GPUs[1]}.Name()
	draining := publish.DrainingTaints(map[gpu.PoolDevice]bool{{Pool: nodeName, Device: first}: true, {Pool: "other", Device: second}: true})
	cleanup, conflict := publish.CleanupTaints([]gpu.PendingCleanup{{GPU: n.GPUs[0].UUID}}), publish.ConflictTaints(publish.ConflictDevicePlugin)
	taint := func(name, value string) resourceapi.DeviceTaint {
		return resourceapi.DeviceTaint{Key: driverName + "/" + name, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	}
	assert.Empty(t, tainted(n))
	assert.Equal(t, map[string][]resourceapi.DeviceTaint{string(first): {taint("config-change", "")}}, tainted(n, draining))
	assert.Equal(t, map[string][]resourceapi.DeviceTaint{
		string(first):  {taint("not-released", ""), taint("config-change", ""), taint("conflict", "device-plugin")},
		string(second): {taint("conflict", "device-plugin")},
	}, tainted(n, cleanup, draining, conflict))
	other := []publish.TaintRule{{Name: "degraded", Value: "ecc", Effect: resourceapi.DeviceTaintEffectNoExecute, Devices: map[gpu.PoolDevice]bool{{Pool: nodeName, Device: second}: true}}}
	assert.Equal(t, map[string][]resourceapi.DeviceTaint{
		string(second): {{Key: driverName + "/degraded", Value: "ecc", Effect: resourceapi.DeviceTaintEffectNoExecute}},
	}, tainted(n, other))
}

func TestWithdrawn_TaintsNotStored_OnlyByRule(t *testing.T) {
	t.Parallel()
	cleanup := publish.CleanupTaints([]gpu.PendingCleanup{{GPU: "GPU-1"}})
	draining := publish.DrainingTaints(map[gpu.PoolDevice]bool{{Pool: nodeName, Device: "gpu-1"}: true})
	conflict := publish.ConflictTaints(publish.ConflictDRADriver)
	for _, rules := range [][]publish.TaintRule{nil, cleanup, draining, slices.Concat(cleanup, draining)} {
		assert.False(t, publish.Withdrawn(rules, false))
		assert.False(t, publish.Withdrawn(slices.Concat(rules, conflict), true))
		assert.True(t, publish.Withdrawn(slices.Concat(rules, conflict), false))
	}
	assert.Empty(t, publish.CleanupTaints(nil))
	assert.Empty(t, publish.DrainingTaints(nil))
	assert.Empty(t, publish.ConflictTaints(""))
}

// TestTaints_MPSUnavailable_MPSSharesAlone: the whole GPU of the same pool stays as it is, and if taints are not stored, only the shares
// are withdrawn.
func TestTaints_MPSUnavailable_MPSSharesAlone(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	modes := gpu.Modes{Whole: true, MPS: &gpu.MPSSharing{MPSSize: gpu.MPSSize{Replicas: 2, Memory: gpu.MPSMemory{
		Total: 64 << 30, Default: 32 << 30, Min: 1 << 20, Max: 64 << 30, Step: 1 << 20,
	}, Threads: gpu.MPSThreads{Total: 100}}}}
	opts := publish.Options{
		DriverName: driverName, NodeName: nodeName, Layout: gpu.Layout{n.GPUs[0].UUID: modes}, Taints: publish.UnavailableTaints(gpu.TypeMPS),
	}
	taints := func() map[string][]string {
		found := map[string][]string{}
		for _, d := range devicesIn(published(n, opts)) {
			found[d.Name] = []string{}
			for _, taint := range d.Taints {
				found[d.Name] = append(found[d.Name], taint.Key+":"+string(taint.Effect))
			}
		}
		return found
	}
	first, second := string(gpu.Whole{GPU: &n.GPUs[0]}.Name()), string(gpu.Whole{GPU: &n.GPUs[1]}.Name())
	shared := string(gpu.MPSShare{GPU: &n.GPUs[0]}.Name())
	assert.Equal(t, map[string][]string{first: {}, second: {}, shared: {driverName + "/mps-unavailable:NoSchedule"}}, taints())
	opts.TaintsDropped = true
	assert.Equal(t, map[string][]string{first: {}, second: {}}, taints())
	opts.Taints = nil
	assert.Equal(t, map[string][]string{first: {}, second: {}, shared: {}}, taints())
	assert.False(t, publish.Withdrawn(publish.UnavailableTaints(gpu.TypeMPS), false), "other devices stay")
}

// sick is the rule of a finding of a GPU.
func sick(id gpu.UUID) []publish.TaintRule {
	return []publish.TaintRule{{
		Name: "gpu-lost", Value: "lost", TimeAdded: metav1.Unix(1_900_000_000, 0), GPUs: map[gpu.UUID]bool{id: true}, WithoutTaints: publish.WithdrawGPUs,
	}}
}

// TestTaints_SickGPU_DevicesOfTheGPUAlone: all ways to use the GPU are tainted, and withdrawn if taints are not stored.
func TestTaints_SickGPU_DevicesOfTheGPUAlone(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	began := metav1.Unix(1_900_000_000, 0)
	modes := gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: []string{"1g.10gb"}}
	for name, layout := range map[string]gpu.Layout{"whole": nil, "partitioned": {n.GPUs[0].UUID: modes, n.GPUs[1].UUID: modes}} {
		opts := publish.Options{DriverName: driverName, NodeName: nodeName, Layout: layout, Taints: sick(n.GPUs[0].UUID), Additional: gpu.Additional{Monitor: true, Perfmon: true}}
		all, withTaint := 0, 0
		count := func() map[string]int {
			byGPU := map[string]int{}
			all, withTaint = 0, 0
			for _, d := range devicesIn(published(n, opts)) {
				if d.Name == string(gpu.Monitor{}.Name()) {
					assert.Empty(t, d.Taints)
					continue
				}
				all++
				byGPU[*d.Attributes[publish.AttrParentUUID].StringValue]++
				if len(d.Taints) > 0 {
					withTaint++
					assert.Equal(t, []resourceapi.DeviceTaint{{
						Key: driverName + "/gpu-lost", Value: "lost", Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &began,
					}}, d.Taints)
					assert.Equal(t, string(n.GPUs[0].UUID), *d.Attributes[publish.AttrParentUUID].StringValue)
				}
			}
			return byGPU
		}
		first, second := string(n.GPUs[0].UUID), string(n.GPUs[1].UUID)
		stored := count()
		assert.Equal(t, all, 2*withTaint, name)
		assert.Equal(t, stored[first], stored[second], name)
		opts.TaintsDropped = true
		dropped := count()
		assert.Zero(t, dropped[first], name)
		assert.Equal(t, stored[second], dropped[second], name)
		assert.False(t, publish.Withdrawn(opts.Taints, false), "other GPUs stay")
	}
}

// TestTaints_MPSFailed_MPSDeviceOfTheGPUAlone: other GPUs' MPS shares and the whole GPU stay as they are, also if taints are not stored.
func TestTaints_MPSFailed_MPSDeviceOfTheGPUAlone(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 2)
	modes := gpu.Modes{Whole: true, MPS: &gpu.MPSSharing{MPSSize: gpu.MPSSize{Replicas: 2, Memory: gpu.MPSMemory{
		Total: 64 << 30, Default: 32 << 30, Min: 1 << 20, Max: 64 << 30, Step: 1 << 20,
	}, Threads: gpu.MPSThreads{Total: 100}}}}
	opts := publish.Options{
		DriverName: driverName, NodeName: nodeName, Layout: gpu.Layout{n.GPUs[0].UUID: modes, n.GPUs[1].UUID: modes},
		Taints: publish.FailedTaints(gpu.TypeMPS, []gpu.UUID{n.GPUs[1].UUID}),
	}
	names := func() (free, tainted []string) {
		for _, d := range devicesIn(published(n, opts)) {
			if len(d.Taints) == 0 {
				free = append(free, d.Name)
				continue
			}
			tainted = append(tainted, d.Name)
			assert.Equal(t, []resourceapi.DeviceTaint{{
				Key: driverName + "/mps-unavailable", Value: "failed", Effect: resourceapi.DeviceTaintEffectNoSchedule,
			}}, d.Taints)
		}
		return free, tainted
	}
	failed := string(gpu.MPSShare{GPU: &n.GPUs[1]}.Name())
	others := []string{
		string(gpu.Whole{GPU: &n.GPUs[0]}.Name()), string(gpu.Whole{GPU: &n.GPUs[1]}.Name()), string(gpu.MPSShare{GPU: &n.GPUs[0]}.Name()),
	}
	free, tainted := names()
	assert.ElementsMatch(t, others, free)
	assert.Equal(t, []string{failed}, tainted)
	opts.TaintsDropped = true
	free, tainted = names()
	assert.ElementsMatch(t, others, free)
	assert.Empty(t, tainted)
	assert.Empty(t, publish.FailedTaints(gpu.TypeMPS, nil))
}
