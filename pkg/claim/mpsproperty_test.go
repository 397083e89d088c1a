package claim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// randomClaim is a claim for up to three devices of mpsShared, with up to three configurations.
func randomClaim(r *rand.Rand) *resourceapi.ResourceClaim {
	requests := []string{"a", "b", "c"}
	pick := func(values []string) string { return values[r.IntN(len(values))] }
	var rc []resourceapi.DeviceRequestAllocationResult
	for i := range 1 + r.IntN(3) {
		share := fmt.Sprint(i)
		candidates := []resourceapi.DeviceRequestAllocationResult{
			inA(requests[i], "gpu-aaaaaaaa"), inA(requests[i], migA+"9-0"), inA(requests[i], migA+"9-4"), inA(requests[i], migA+"19-6"),
			result(requests[i], "gpu-bbbbbbbb", withPool(poolB)), anMPSShare(requests[i], poolA, mpsA, share, "memory", pick([]string{"1Gi", "4Gi", "40Gi"})),
			anMPSShare(requests[i], poolB, mpsB, share, "memory", "2Gi", "activeThreadPercentage", pick([]string{"0", "50", "101"})),
			aShare(requests[i], poolB, timeSliceB, share), inA(requests[i], "gpu-aaaaaaaa", withAdmin),
		}
		rc = append(rc, candidates[r.IntN(len(candidates))])
	}
	var configs []resourceapi.DeviceAllocationConfiguration
	for range r.IntN(4) {
		raw := pick([]string{
			plainConfig, mpsConfig, longConfig, sharing(`{"strategy":"MPS"}`), sharing(`{"mps":{"memoryLimit":"1Gi"}}`), enforceConfig,
			sharing(`{"mps":{"memoryLimit":"100Gi"}}`),
		})
		source := []resourceapi.AllocationConfigSource{fromClass, fromClaim}[r.IntN(2)]
		configs = append(configs, config(source, driverName, raw, requests[:r.IntN(3)]...))
	}
	return allocated(rc, configs...)
}

// Whatever is accepted: a result is used with MPS if it is a share of an mps device or its configuration chose MPS. Then exactly one step
// exists for it, after the step that makes its MIG device.
func TestResolve_RandomClaims_OneStepForEachMPSResult(t *testing.T) {
	t.Parallel()
	n, layout := mpsShared()
	b := layout[uuidB]
	b.Whole, b.TimeSlice = true, &gpu.Replicas{Count: 3}
	layout[uuidB] = b
	accepted := map[gpu.DeviceType]int{}
	for seed := range uint64(5000) {
		rc := randomClaim(rand.New(rand.NewPCG(seed, 14)))
		plan, err := advertising(n, layout).Resolve(rc)
		if err != nil {
			continue
		}
		used := 0
		for i := range plan.Results {
			r := &plan.Results[i]
			if mpsOf(r) == nil {
				require.NotEqual(t, gpu.TypeMPS, r.Device.Type(), "seed %d", seed)
				continue
			}
			used++
			accepted[r.Device.Type()]++
			requireOneStep(t, plan, r)
		}
		steps := slices.DeleteFunc(slices.Clone(plan.Steps), func(s Step) bool { return s.Kind != StepMPS })
		require.Len(t, steps, used, "seed %d", seed)
	}
	for _, device := range []gpu.DeviceType{gpu.TypeGPU, gpu.TypeMIG, gpu.TypeMPS} {
		assert.Greater(t, accepted[device], 100, device)
	}
}

// requireOneStep fails the test unless a control daemon serves the result in exactly one step, after the device is made and within the
// daemon's bounds.
func requireOneStep(t *testing.T, plan *Plan, r *Result) {
	t.Helper()
	is := func(kind string) func(Step) bool {
		return func(s Step) bool { return s.Kind == kind && s.Device == r.Device.Name() && s.ShareID == r.ShareID }
	}
	at := slices.IndexFunc(plan.Steps, is(StepMPS))
	require.GreaterOrEqual(t, at, 0)
	require.False(t, slices.ContainsFunc(plan.Steps[at+1:], is(StepMPS)), "a second step")
	args, err := ParseMPS(plan.Steps[at].Args)
	require.NoError(t, err)
	require.Equal(t, *mpsOf(r), args.MPSUse)
	require.Equal(t, gpu.MPSDaemonOf(r.Device), args.Daemon)
	require.Equal(t, r.Device.Parent().UUID, plan.Steps[at].Target)
	_, partition := r.Device.(gpu.MIGDevice)
	require.Equal(t, partition, args.MIG != nil)
	require.Equal(t, r.Device.Type() == gpu.TypeMPS, args.Bounds != nil)
	require.False(t, args.Default.MemoryMiB > 0 && args.MemoryMiB > args.Default.MemoryMiB, "more than the daemon allows")
	made := slices.IndexFunc(plan.Steps, is(StepMIG))
	require.Equal(t, partition, made >= 0)
	require.Less(t, made, at)
	require.False(t, slices.ContainsFunc(plan.Steps[at+1:], is(StepMIG)), "made after the daemon started")
}
