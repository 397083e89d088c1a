package scale

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// GPUs is the number of GPUs of a node.
const GPUs = 8

// Board is the model of the GPUs.
const Board = "h100-80"

// Simulated returns a simulated node as the plugin's inventory discovers it.
func Simulated(ctx context.Context) (*gpu.Node, error) {
	n, err := model.New(model.Uniform("node", Board, GPUs))
	if err != nil {
		return nil, err
	}
	host := port.NewHost(n)
	inv := inventory.New(inventory.Options{Host: host, Open: host.Open})
	err = inv.Refresh(ctx)
	return inv.Current().Node, err
}

// objects returns the ResourceSlices of a node as the ResourceSlice controller would create them, with names in their order.
func objects(driver, node string, pools map[string]resourceslice.Pool) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, s := range pools[pool].Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", strings.ReplaceAll(pool, "/", "-"), i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return all
}
