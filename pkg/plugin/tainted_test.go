package plugin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// TestTainted_PublishedDrainingDevice_Found: the plugin waits for the same taint that it publishes, also in a GPU's own pool.
func TestTainted_PublishedDrainingDevice_Found(t *testing.T) {
	t.Parallel()
	g := gpu.GPU{UUID: "GPU-aaaaaaaa-0000-4000-8000-000000000000", Product: gpu.Product{Name: "NVIDIA H100", MIGCapable: true}, MIG: &gpu.MIG{}}
	node := &gpu.Node{GPUs: []gpu.GPU{g}}
	gpu.AssignIDs(node.GPUs)
	layout := gpu.Layout{g.UUID: {Whole: true, TimeSlice: &gpu.Replicas{Count: 2}}}
	modes := layout.Of(&node.GPUs[0])
	place := func(d gpu.Device) gpu.PoolDevice {
		return gpu.PoolDevice{Pool: modes.Pool("n0", &node.GPUs[0]), Device: d.Name()}
	}
	devices := modes.Devices(&node.GPUs[0])
	want := map[gpu.PoolDevice]bool{}
	for i, d := range devices {
		want[place(d)] = i == 0
	}
	resources := publish.Resources(publish.Options{
		DriverName: "gpu.example.com", NodeName: "n0", Layout: layout, Taints: publish.DrainingTaints(map[gpu.PoolDevice]bool{place(devices[0]): true}),
	}, node)
	client, name := fake.NewClientset(), "n0"
	for pool, content := range resources.Pools {
		for _, slice := range content.Slices {
			_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", len(client.Actions()))}, Spec: resourceapi.ResourceSliceSpec{
					Driver: "gpu.example.com", NodeName: &name, Pool: resourceapi.ResourcePool{Name: pool}, Devices: slice.Devices,
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	cfg := &config.Plugin{DriverName: "gpu.example.com", NodeName: "n0"}
	found, err := NewAPI(t.Context(), APIOptions{Config: cfg, Claims: client, Background: client}).Cluster.Tainted(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, found)
	assert.Equal(t, want, found)
}
