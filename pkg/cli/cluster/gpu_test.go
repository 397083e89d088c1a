package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
)

const driver = "gpu.prism.dev"

// published returns the ResourceSlices that the plugin publishes for a machine.
func published(t *testing.T, name string) (list []resourceapi.ResourceSlice) {
	t.Helper()
	file, err := os.Open("../../plugin/publish/testdata/" + name + ".yaml")
	require.NoError(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var s resourceapi.ResourceSlice
		err := decoder.Decode(&s)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		list = append(list, s)
	}
}

func TestGPUs_PublishedSlices_EachGPUOnce(t *testing.T) {
	t.Parallel()
	gpus := cluster.GPUs(published(t, "h100-80"))
	require.NotEmpty(t, gpus)
	for i, g := range gpus {
		assert.Equal(t, "node-1", g.Node)
		assert.Equal(t, int64(i), *g.Index)
		assert.Equal(t, g.Name, clusterview.NameOf(g.Name+"-mig-19-6"))
		assert.Equal(t, map[string]int{"gpu": 1}, g.Devices)
		assert.Regexp(t, "^GPU-", g.UUID)
		assert.Contains(t, g.Product, "H100")
		assert.NotEmpty(t, g.DriverVersion)
	}
	partitioned := cluster.GPUs(published(t, "mig-h100-80"))
	require.NotEmpty(t, partitioned)
	assert.Equal(t, 1, partitioned[0].Devices["gpu"])
	assert.Greater(t, partitioned[0].Devices["mig"], 10)
}

// device returns a device of a GPU with taints.
func device(name, kind, uuid string, index *int64, taints ...resourceapi.DeviceTaint) resourceapi.Device {
	d := resourceapi.Device{Name: name, Taints: taints, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: &kind}, "parentUUID": {StringValue: &uuid},
	}}
	if index != nil {
		d.Attributes["index"] = resourceapi.DeviceAttribute{IntValue: index}
		d.Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: &uuid}
	}
	return d
}

func slice(node, pool string, generation int64, devices ...resourceapi.Device) resourceapi.ResourceSlice {
	name := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool, generation)}
	return resourceapi.ResourceSlice{ObjectMeta: name, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation}, Devices: devices,
	}}
}

func TestGPUs_Taints_CountedByDevice(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Unix(1000, 0))
	lost := resourceapi.DeviceTaint{Key: driver + "/gpu-lost", Value: "hung", Effect: "NoSchedule", TimeAdded: &since}
	busy := resourceapi.DeviceTaint{Key: driver + "/perfmon-busy", Effect: "NoSchedule"}
	gpus := cluster.GPUs([]resourceapi.ResourceSlice{
		slice("n1", "n1", 2, device("gpu-aaaaaaaa", "gpu", "GPU-aaaaaaaa-1", new(int64(1)), lost), device("monitor", "monitor", "", nil)),
		slice("n1", "n1", 1, device("gpu-dddddddd", "gpu", "GPU-dddddddd-1", new(int64(0)))),
		slice("n1", "n1/gpu-aaaaaaaa", 1, device("gpu-aaaaaaaa-perfmon", "perfmon", "GPU-aaaaaaaa-1", nil, lost, busy)),
		slice("n0", "n0", 1, device("gpu-bbbbbbbb-mig-19-0", "mig", "GPU-bbbbbbbb-1", nil)),
	})
	require.Len(t, gpus, 2, "neither the device of the node nor the older generation is a GPU")
	assert.Equal(t, "gpu-bbbbbbbb", gpus[0].Name)
	assert.Nil(t, gpus[0].Index)
	assert.Equal(t, []cluster.Taint{
		{Key: driver + "/gpu-lost", Value: "hung", Effect: "NoSchedule", Since: &since, Devices: 2},
		{Key: driver + "/perfmon-busy", Effect: "NoSchedule", Devices: 1},
	}, gpus[1].Taints)
	assert.True(t, gpus[1].Tainted(driver+"/gpu-lost"))
	assert.False(t, gpus[1].Tainted(driver+"/perfmon-busy"), "a part of the devices")
	assert.False(t, gpus[0].Tainted(driver+"/gpu-lost"))
}

func TestResolve_Texts_OneGPUOrTheChoices(t *testing.T) {
	t.Parallel()
	gpus := cluster.GPUs([]resourceapi.ResourceSlice{slice("n1", "n1", 1,
		device("gpu-5d3f61a2", "gpu", "GPU-5d3f61a2-0000-1111", new(int64(0))), device("gpu-5d3f61a2-mig-19-6", "mig", "GPU-5d3f61a2-0000-1111", nil),
		device("gpu-12345678", "gpu", "GPU-12345678-0000-1111", new(int64(1))), device("gpu-123456780", "gpu", "GPU-12345678-0222-1111", new(int64(2))),
	)})
	require.Len(t, gpus, 3)
	known := []string{"all", "gpu-cccccccc"}
	for text, want := range map[string]string{
		"0": "gpu-5d3f61a2", "1": "gpu-12345678", "gpu-5d3f61a2": "gpu-5d3f61a2", "5d3f61a2": "gpu-5d3f61a2", "GPU-5d3f61a2-0000-1111": "gpu-5d3f61a2",
		"GPU-5D3F61A2-0000-1111": "gpu-5d3f61a2", "GPU-5d3": "gpu-5d3f61a2", "gpu-5d3f61a2-mig-19-6": "gpu-5d3f61a2", "12345678": "gpu-12345678",
		"gpu-cccccccc": "gpu-cccccccc", "cccccccc": "gpu-cccccccc",
	} {
		gpu, err := cluster.Resolve(gpus, known, "n1", text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, cluster.Place{Node: "n1", Name: want}, gpu.Place, text)
		}
	}
	const choices = "; GPUs of the node: gpu-5d3f61a2 (index 0, GPU-5d3f61a2-0000-1111), gpu-12345678 (index 1, GPU-12345678-0000-1111), " +
		"gpu-123456780 (index 2, GPU-12345678-0222-1111)"
	for text, want := range map[string]string{
		"3": "unknown", "GPU-1234": "ambiguous", "GPU-": "unknown", "": "unknown", "all": "unknown", "gpu": "unknown", "gpu-5d3f": "unknown", "MIG-1": "unknown",
	} {
		_, err := cluster.Resolve(gpus, known, "n1", text)
		assert.EqualError(t, err, `GPU "`+text+`" of node n1: `+want+choices)
	}
	_, err := cluster.Resolve(nil, nil, "n1", "0")
	assert.EqualError(t, err, `GPU "0" of node n1: unknown; the node advertises no GPU`)
}

func TestAllocated_Results_PhysicalGPUsOfTheDriver(t *testing.T) {
	t.Parallel()
	claim := &resourceapi.ResourceClaim{}
	assert.Empty(t, cluster.Allocated(claim, driver))
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: driver, Pool: "n1", Device: "gpu-aaaaaaaa"}, {Driver: driver, Pool: "n1/gpu-aaaaaaaa", Device: "gpu-aaaaaaaa-mig-19-0"},
		{Driver: driver, Pool: "n1/monitor", Device: "monitor"}, {Driver: "nic.example.com", Pool: "n1", Device: "gpu-bbbbbbbb"},
	}}}
	assert.Equal(t, []cluster.Place{{Node: "n1", Name: "gpu-aaaaaaaa"}}, cluster.Allocated(claim, driver))
}
