package publish_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

var (
	ownKeys = []resourceapi.QualifiedName{
		"type", "uuid", "parentUUID", "index", "minor", "productName", "brand", "architecture", "addressingMode", "cudaComputeCapability",
		"driverVersion", "cudaDriverVersion", "profile", "shareName", "replicas", "memoryEnforcement",
	}
	// dynamicMIGKeys are the attributes of a MIG device that is made for a claim.
	dynamicMIGKeys = []resourceapi.QualifiedName{
		"type", "profile", "parentUUID", "productName", "architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion",
	}
	standardKeys = []resourceapi.QualifiedName{
		deviceattribute.StandardDeviceAttributePCIeRoot,
		deviceattribute.StandardDeviceAttributePCIBusID,
		deviceattribute.StandardDeviceAttributeNUMANode,
	}
)

// devices flattens the published ResourceSlices, after the checks that hold for every node.
func devices(t *testing.T, n *gpu.Node) []resourceapi.Device {
	t.Helper()
	resources := publish.Resources(publish.Options{NodeName: nodeName}, n)
	require.Len(t, resources.Pools, 1)
	pool, ok := resources.Pools[nodeName]
	require.True(t, ok, "the pool is called like the node")
	require.NotEmpty(t, pool.Slices, "a running driver publishes at least one ResourceSlice")
	var out []resourceapi.Device
	for _, slice := range pool.Slices {
		require.LessOrEqual(t, len(slice.Devices), 64)
		require.Empty(t, slice.SharedCounters)
		for _, d := range slice.Devices {
			checkDevice(t, d)
			out = append(out, d)
		}
	}
	return out
}

var qualifiedName = regexp.MustCompile(`^([a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}$`)

// checkDevice applies the API's rules and ours.
func checkDevice(t *testing.T, d resourceapi.Device) {
	t.Helper()
	assert.Empty(t, validation.IsDNS1123Label(d.Name), d.Name)
	assert.LessOrEqual(t, len(d.Attributes)+len(d.Capacity), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
	assert.Nil(t, d.AllowMultipleAllocations)
	assert.Empty(t, d.ConsumesCounters)
	for _, key := range dynamicMIGKeys {
		assert.Contains(t, d.Attributes, key)
	}
	for name, a := range d.Attributes {
		assert.Regexp(t, qualifiedName, name)
		checkAttribute(t, name, a)
	}
	require.Contains(t, d.Capacity, resourceapi.QualifiedName("memory"))
	for name, c := range d.Capacity {
		assert.Regexp(t, qualifiedName, name)
		assert.GreaterOrEqual(t, c.Value.Sign(), 0)
		assert.Nil(t, c.RequestPolicy)
	}
}

func checkAttribute(t *testing.T, name resourceapi.QualifiedName, a resourceapi.DeviceAttribute) {
	t.Helper()
	values := 0
	for _, s := range []*string{a.StringValue, a.VersionValue} {
		if s != nil {
			values++
			assert.NotEmpty(t, *s, name)
			assert.LessOrEqual(t, len(*s), resourceapi.DeviceAttributeMaxValueLength, name)
		}
	}
	if a.IntValue != nil {
		values++
	}
	if a.BoolValue != nil {
		values++
	}
	assert.Equal(t, 1, values, "%s has one value", name)
}

func names(devices []resourceapi.Device) []string {
	var out []string
	for _, d := range devices {
		out = append(out, d.Name)
	}
	return out
}

func TestResources_EmptyNode_OneEmptyResourceSlice(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]*gpu.Node{"nil": nil, "no driver": {}, "no GPU": {Driver: gpu.Driver{Version: "580.95.05"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Empty(t, devices(t, n))
			assert.Len(t, publish.Resources(publish.Options{NodeName: nodeName}, n).Pools[nodeName].Slices, 1)
		})
	}
}

func TestResources_ManyDevices_FullResourceSlices(t *testing.T) {
	t.Parallel()
	for gpus, want := range map[int][]int{1: {1}, 8: {8}, 32: {32}} {
		n := node(t, "h100-80", gpus)
		var got []int
		for _, slice := range publish.Resources(publish.Options{NodeName: nodeName}, n).Pools[nodeName].Slices {
			got = append(got, len(slice.Devices))
		}
		assert.Equal(t, want, got, "%d GPUs", gpus)
	}
}

func TestResources_ManyGPUs_InOrder(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 32)
	second, err := model.New(model.Uniform("another node", "h100-80", 32))
	require.NoError(t, err)
	for i, id := range second.Identities() {
		g := n.GPUs[i]
		g.UUID, g.Index = gpu.UUID(id.UUID), 32+i
		n.GPUs = append(n.GPUs, g)
	}
	last := n.GPUs[0]
	last.UUID, last.Index = "GPU-ffffffff-0000-4000-8000-000000000000", 64
	n.GPUs = append(n.GPUs, last)
	gpu.AssignIDs(n.GPUs)
	slices := publish.Resources(publish.Options{NodeName: nodeName}, n).Pools[nodeName].Slices
	require.Len(t, slices, 2)
	assert.Len(t, slices[0].Devices, 64)
	assert.Len(t, slices[1].Devices, 1)
	all := names(devices(t, n))
	for i, g := range n.GPUs {
		assert.Equal(t, "gpu-"+g.ID, all[i], "in their order")
	}
}

func TestResources_SameNode_SameBytes(t *testing.T) {
	t.Parallel()
	opts := publish.Options{NodeName: nodeName}
	assert.Empty(t, cmp.Diff(publish.Resources(opts, node(t, "a30", 4)), publish.Resources(opts, node(t, "a30", 4))))
}

func TestAttributes_Place_StandardWhereKnown(t *testing.T) {
	t.Parallel()
	n := node(t, "h100-80", 1)
	for _, d := range devices(t, n) {
		for _, key := range standardKeys {
			assert.Contains(t, d.Attributes, key)
		}
	}
	for name, pci := range map[string]gpu.PCI{
		"unknown":     {NUMANode: -1},
		"other forms": {BusID: "00000000:3B:00.0", Root: "/sys/devices/pci0000:3a", NUMANode: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node(t, "h100-80", 1)
			n.GPUs[0].PCI = pci
			for _, d := range devices(t, n) {
				for _, key := range standardKeys {
					assert.NotContains(t, d.Attributes, key)
				}
			}
		})
	}
}

// Of a driver that reports next to nothing devices are published that the API server and every selector accept.
func TestResources_DriverReportsLittle_ValidDevices(t *testing.T) {
	t.Parallel()
	n := &gpu.Node{Driver: gpu.Driver{Version: "N/A"}, GPUs: []gpu.GPU{{
		UUID:     "GPU-3f2a9c1b-0000-0000-0000-000000000000",
		Product:  gpu.Product{Name: strings.Repeat("ü", 100), ComputeCapability: "?"},
		Capacity: gpu.Capacity{MemoryBytes: math.MaxUint64},
	}}}
	gpu.AssignIDs(n.GPUs)
	all := devices(t, n)
	require.Equal(t, []string{"gpu-3f2a9c1b"}, names(all))
	whole := all[0]
	assert.Equal(t, strings.Repeat("ü", 32), *whole.Attributes["productName"].StringValue)
	assert.Equal(t, "unknown", *whole.Attributes["brand"].StringValue)
	assert.Equal(t, "0.0.0", *whole.Attributes["driverVersion"].VersionValue)
	assert.Equal(t, "0.0.0", *whole.Attributes["cudaComputeCapability"].VersionValue)
	assert.Len(t, whole.Capacity, 1, "no engines are reported")
	assert.Equal(t, int64(math.MaxInt64), quantity(whole, "memory"))

	n.GPUs[0].Capacity.MemoryBytes = 0
	assert.Equal(t, int64(0), quantity(devices(t, n)[0], "memory"), "memory is never missing")
}

func quantity(d resourceapi.Device, name resourceapi.QualifiedName) int64 {
	q := d.Capacity[name].Value
	return q.Value()
}
