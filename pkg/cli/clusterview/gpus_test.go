package clusterview_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

const mi = int64(1) << 20

// gpusOf returns the GPUs of a machine whose devices are allocated to claims of these names.
func gpusOf(t *testing.T, machine string, held map[string]resourceapi.DeviceRequestAllocationResult) []*clusterview.GPU {
	t.Helper()
	store := clusterview.NewStore()
	for _, slice := range published(t, machine) {
		store.PutSlice(slice)
	}
	for claim, result := range held {
		store.PutClaim(allocated(claim, result))
	}
	return store.Cluster().GPUs(driver)
}

func TestGPUs_PartitionedGPU_PartsByMemorySlice(t *testing.T) {
	t.Parallel()
	result := func(device string) resourceapi.DeviceRequestAllocationResult {
		return resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: "node-1/gpu-bc8c6223", Device: device}
	}
	gpus := gpusOf(t, "mig-h100-80", map[string]resourceapi.DeviceRequestAllocationResult{
		"high": result("gpu-bc8c6223-mig-9-4"), "low": result("gpu-bc8c6223-mig-19-2"), "gone": result("gpu-bc8c6223-mig-99-0"),
	})
	require.NotEmpty(t, gpus)
	g := gpus[0]
	assert.Equal(t, "gpu-bc8c6223", g.Name)
	assert.Equal(t, "node-1", g.Node.Name)
	assert.Equal(t, "GPU-bc8c6223-297b-4179-8705-f32f7617faab", g.UUID)
	assert.Equal(t, int64(0), *g.Index)
	assert.Equal(t, "NVIDIA H100 80GB HBM3", g.Product)
	assert.Equal(t, "580.95.5", g.DriverVersion)
	assert.Equal(t, 8, g.MemorySlices)
	assert.Equal(t, 81559*mi, g.Memory)
	assert.Equal(t, 1, g.Devices["gpu"])
	assert.Equal(t, 7, g.Profiles["1g.10gb"])
	require.Len(t, g.Parts, 3)
	assert.Equal(t, []int{2, 1, 4, 4}, []int{g.Parts[0].Start, g.Parts[0].Size, g.Parts[1].Start, g.Parts[1].Size})
	assert.Equal(t, []string{"1g.10gb", "3g.40gb"}, []string{g.Parts[0].Profile, g.Parts[1].Profile})
	assert.Equal(t, "low", g.Parts[0].Uses[0].Claim.Name)
	assert.Empty(t, g.Parts[2].Type, "a device that is no longer advertised")
	assert.Equal(t, g.Memory-g.Parts[0].Memory-g.Parts[1].Memory, g.Free)
}

func TestGPUs_Shares_FreeIsNotConsumed(t *testing.T) {
	t.Parallel()
	gpus := gpusOf(t, "mps-h100-80", nil)
	require.NotEmpty(t, gpus)
	name := gpus[0].Name
	var pool *clusterview.Pool
	for _, p := range gpus[0].Node.Pools {
		for _, device := range devices(p) {
			if device == name+"-mps" {
				pool = p
			}
		}
	}
	require.NotNil(t, pool)
	gpus = gpusOf(t, "mps-h100-80", map[string]resourceapi.DeviceRequestAllocationResult{
		"a": share(pool, name+"-mps", "a", "20Gi"), "b": share(pool, name+"-mps", "b", "22Gi"),
	})
	g := gpus[0]
	require.Len(t, g.Parts, 1)
	assert.Equal(t, "mps", g.Parts[0].Type)
	assert.Equal(t, 0, g.Parts[0].Size)
	assert.Len(t, g.Parts[0].Uses, 2)
	assert.Equal(t, g.Memory-42*1024*mi, g.Free)
}

func TestGPUs_DevicesCreatedBefore_PlacementsFromNames(t *testing.T) {
	t.Parallel()
	gpus := gpusOf(t, "disjoint-h100-80", map[string]resourceapi.DeviceRequestAllocationResult{
		"a": {Driver: driver, Pool: "node-1/gpu-2a69f574", Device: "gpu-2a69f574-mig-15-6"},
		"b": {Driver: driver, Pool: "node-1/gpu-2a69f574", Device: "gpu-2a69f574-mig-19-3"},
	})
	for _, g := range gpus {
		if g.Name != "gpu-2a69f574" {
			continue
		}
		assert.Equal(t, 8, g.MemorySlices)
		require.Len(t, g.Parts, 2)
		assert.Equal(t, []int{3, 1, 6, 2}, []int{g.Parts[0].Start, g.Parts[0].Size, g.Parts[1].Start, g.Parts[1].Size})
		assert.Greater(t, g.Free, 40*1024*mi)
		return
	}
	t.Fatal("the GPU is missing")
}

func TestGPUs_TaintOfSeveralTimes_SinceTheFirst(t *testing.T) {
	t.Parallel()
	store := clusterview.NewStore()
	for i, times := range [][]int64{{0, 5000, 3000}, {2000, 4000}} { // 0: unknown
		slice := plain(fmt.Sprint("s", i), "p", 1, 2)
		for j, at := range times {
			taint := resourceapi.DeviceTaint{Key: "k", Effect: "NoSchedule"}
			if at > 0 {
				taint.TimeAdded = new(metav1.Unix(at, 0))
			}
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("gpu-1-mig-%d-%d", i, j), Taints: []resourceapi.DeviceTaint{taint}})
		}
		store.PutSlice(slice)
	}
	since := func(seconds int64, devices int) {
		t.Helper()
		want := clusterview.Taint{Key: "k", Effect: "NoSchedule", Since: new(metav1.Unix(seconds, 0)), Devices: devices}
		assert.Equal(t, []clusterview.Taint{want}, store.Cluster().GPUs(driver)[0].Taints)
	}
	since(2000, 5)
	store.DeleteSlice("s1")
	since(3000, 3)
	store.PutRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{}, Taint: resourceapi.DeviceTaint{Key: "k", Effect: "NoSchedule", TimeAdded: new(metav1.Unix(1000, 0))},
	}})
	since(1000, 6)
}

func TestGPUs_AllMachines_TaintsAndMemory(t *testing.T) {
	t.Parallel()
	since := metav1.Unix(1000, 0)
	for _, machine := range machines(t) {
		store, total := clusterview.NewStore(), 0
		for _, slice := range published(t, machine) {
			for i := range slice.Spec.Devices {
				slice.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "k", Value: "v", Effect: "NoSchedule", TimeAdded: &since}}
				if clusterview.NameOf(slice.Spec.Devices[i].Name) != "" {
					total++
				}
			}
			store.PutSlice(slice)
		}
		for _, g := range store.Cluster().GPUs(driver) {
			require.Len(t, g.Taints, 1)
			total -= g.Taints[0].Devices
			g.Taints[0].Devices = 0
			assert.Equal(t, clusterview.Taint{Key: "k", Value: "v", Effect: "NoSchedule", Since: &since}, g.Taints[0], machine)
			assert.Positive(t, g.Memory, "%s %s", machine, g.Name)
			assert.Equal(t, g.Memory, g.Free)
		}
		assert.Zero(t, total, machine)
		assert.Empty(t, store.Cluster().GPUs("other.example.com"))
	}
}
