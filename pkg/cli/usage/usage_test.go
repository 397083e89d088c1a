package usage_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/cli/usage"
)

func sample(name string, value float64, labels ...string) usage.Sample {
	s := usage.Sample{Name: name, Value: value, Labels: map[string]string{}, Node: "n1"}
	for i := 0; i < len(labels); i += 2 {
		s.Labels[labels[i]] = labels[i+1]
	}
	return s
}

// TestOf_ScrapedTwice_CountedOnce: two replicas of Prometheus, and a scrape that hides the labels of the exporter.
func TestOf_ScrapedTwice_CountedOnce(t *testing.T) {
	t.Parallel()
	var samples []usage.Sample
	for _, replica := range []string{"a", "b"} {
		samples = append(samples,
			sample("prism_gpu_up", 1, "gpu_uuid", "G1", "namespace", "prism-system", "pod", "prism-exporter-"+replica),
			sample("prism_gpu_utilization_ratio", .5, "gpu_uuid", "G1", "namespace", "prism-system", "pod", "prism-exporter-"+replica),
			sample("prism_gpu_memory_total_bytes", 80, "gpu_uuid", "G1", "replica", replica),
			sample("prism_container_gpu_memory_used_bytes", 10, "gpu_uuid", "G1", "namespace", "prism-system", "pod", "prism-exporter-"+replica,
				"exported_namespace", "ml", "exported_pod", "train", "container", "main"),
			sample("prism_gpu_allocation_info", 1, "gpu_uuid", "G1", "exported_namespace", "ml", "exported_pod", "train", "exported_container", "main", "claim", "c"),
			sample("prism_gpu_allocation_info", 1, "gpu_uuid", "G1", "exported_namespace", "ml", "exported_pod", "train", "exported_container", "side", "claim", "c"),
		)
	}
	u := usage.Of(samples)
	assert.Equal(t, map[string]*usage.GPU{"G1": {
		UUID: "G1", Node: "n1", Up: new(true), Load: usage.Load{Utilization: new(.5), MemoryTotal: new(80.)},
	}}, u.GPUs)
	name := usage.Name{Namespace: "ml", Pod: "train"}
	require.Len(t, u.Pods, 1)
	assert.Equal(t, []string{"G1"}, u.Pods[name].GPUs)
	assert.Equal(t, 1, u.Pods[name].Devices)
	assert.Equal(t, usage.Load{MemoryUsed: new(10.)}, u.Pods[name].Load)
}

func TestOf_Pods_SumsOverContainersAndDevices(t *testing.T) {
	t.Parallel()
	of := func(gpu, mig, container string) []string {
		return []string{"gpu_uuid", gpu, "mig_uuid", mig, "namespace", "ml", "pod", "p", "container", container}
	}
	u := usage.Of([]usage.Sample{
		sample("prism_container_gpu_utilization_ratio", .75, of("G1", "", "a")...),
		sample("prism_container_gpu_utilization_ratio", .25, of("G1", "", "b")...),
		sample("prism_container_gpu_utilization_ratio", 1, of("G2", "M1", "a")...),
		sample("prism_container_gpu_utilization_ratio", 1, of("G2", "M2", "a")...),
		sample("prism_container_gpu_memory_used_bytes", math.NaN(), of("G1", "", "a")...),
		sample("prism_container_gpu_process_utilization_ratio", 1, of("G1", "", "a")...),
		sample("prism_container_gpu_utilization_ratio", 1, "namespace", "ml", "pod", "p"),
		sample("up", 1, "gpu_uuid", "G1"),
		sample("prism_container_gpu_memory_used_bytes", 5, "gpu_uuid", "G3", "namespace", "ml", "pod", "q"),
		sample("prism_container_gpu_memory_total_bytes", 8, "gpu_uuid", "G3", "namespace", "ml", "pod", "q"),
		sample("prism_container_gpu_memory_used_bytes", 5, "gpu_uuid", "G3", "namespace", "ml", "pod", "r"),
		sample("prism_container_gpu_memory_total_bytes", 8, "gpu_uuid", "G3", "namespace", "ml", "pod", "r"),
		sample("prism_container_gpu_memory_used_bytes", 5, "gpu_uuid", "G4", "namespace", "ml", "pod", "r"),
	})
	assert.InDelta(t, 8, *u.Pods[usage.Name{Namespace: "ml", Pod: "q"}].MemoryTotal, 0)
	r := u.Pods[usage.Name{Namespace: "ml", Pod: "r"}]
	assert.InDelta(t, 10, *r.MemoryUsed, 0)
	assert.Nil(t, r.MemoryTotal, "one of its devices is shared")
	pod := u.Pods[usage.Name{Namespace: "ml", Pod: "p"}]
	require.NotNil(t, pod)
	assert.InDelta(t, 3, *pod.Utilization, 1e-9)
	assert.Nil(t, pod.MemoryUsed, "stale")
	assert.Equal(t, []string{"G1", "G2"}, pod.GPUs)
	assert.Empty(t, u.GPUs)
}

// TestOf_MIGDevices_WeighedByMemory: for a GPU in MIG mode the driver reports no utilization.
func TestOf_MIGDevices_WeighedByMemory(t *testing.T) {
	t.Parallel()
	samples := []usage.Sample{
		sample("prism_gpu_memory_total_bytes", 80, "gpu_uuid", "G1"), sample("prism_gpu_memory_total_bytes", 80, "gpu_uuid", "G2"),
		sample("prism_mig_utilization_ratio", 1, "gpu_uuid", "G1", "mig_uuid", "M1"), sample("prism_mig_memory_total_bytes", 40, "gpu_uuid", "G1", "mig_uuid", "M1"),
		sample("prism_mig_utilization_ratio", .5, "gpu_uuid", "G1", "mig_uuid", "M2"), sample("prism_mig_memory_total_bytes", 10, "gpu_uuid", "G1", "mig_uuid", "M2"),
		sample("prism_mig_utilization_ratio", 1, "gpu_uuid", "G2", "mig_uuid", "M3"), sample("prism_mig_utilization_ratio", 1, "gpu_uuid", "G9", "mig_uuid", "M9"),
	}
	u := usage.Of(samples)
	assert.InDelta(t, 45./80, *u.GPUs["G1"].Utilization, 1e-9)
	assert.Nil(t, u.GPUs["G2"].Utilization, "no MIG device with both values")
	samples = append(samples, sample("prism_gpu_utilization_ratio", .1, "gpu_uuid", "G1"))
	assert.InDelta(t, .1, *usage.Of(samples).GPUs["G1"].Utilization, 1e-9, "the value of the GPU")
}
