package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
)

const draining = "gpu.prism.dev/draining"

// storedSlice is a ResourceSlice; devices with a name that ends in ! are tainted.
func storedSlice(name, driver, node, pool string, devices ...string) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool},
	}}
	for _, name := range devices {
		d := resourceapi.Device{Name: name, Taints: []resourceapi.DeviceTaint{{Key: "gpu.prism.dev/other"}}}
		if bare, marked := name[:len(name)-1], name[len(name)-1] == '!'; marked {
			d.Name, d.Taints = bare, append(d.Taints, resourceapi.DeviceTaint{Key: draining})
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
	}
	return slice
}

func TestStoredTainted_Devices_TaintedInEverySlice(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(
		storedSlice("a", "gpu.prism.dev", "n0", "n0", "gpu-a!", "gpu-b", "gpu-c!"),
		storedSlice("b", "gpu.prism.dev", "n0", "n0", "gpu-c", "gpu-d!"),
		storedSlice("c", "gpu.prism.dev", "n0", "n0", "gpu-d!"),
		storedSlice("d", "gpu.prism.dev", "n1", "n1", "gpu-e!"),
		storedSlice("e", "gpu.example.com", "n0", "n0", "gpu-f!"),
	)
	got, err := kube.Stored{Client: client, DriverName: "gpu.prism.dev", NodeName: "n0"}.Tainted(t.Context(), draining)
	require.NoError(t, err)
	want := map[gpu.PoolDevice]bool{}
	for name, tainted := range map[gpu.DeviceName]bool{"gpu-a": true, "gpu-b": false, "gpu-c": false, "gpu-d": true} {
		want[gpu.PoolDevice{Pool: "n0", Device: name}] = tainted
	}
	assert.Empty(t, cmp.Diff(want, got))
	only := client.Actions()[0].(clienttesting.ListAction).GetListRestrictions().Fields.String()
	assert.Equal(t, "spec.driver=gpu.prism.dev,spec.nodeName=n0", only)
}

// TestStoredRemove_OneDriverAndNode_OthersStay even if a server ignores the selector, like the fake one.
func TestStoredRemove_OneDriverAndNode_OthersStay(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(
		storedSlice("a", "gpu.prism.dev", "n0", "n0", "gpu-a!"), storedSlice("b", "gpu.prism.dev", "n0", "n0/gpu-b", "gpu-b!"),
		storedSlice("c", "gpu.prism.dev", "n1", "n1", "gpu-c!"), storedSlice("d", "gpu.example.com", "n0", "n0", "gpu-d!"),
	)
	require.NoError(t, kube.Stored{Client: client, DriverName: "gpu.prism.dev", NodeName: "n0"}.Remove(t.Context()))
	left, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	assert.ElementsMatch(t, []string{"c", "d"}, names)
}
