// Package gpucluster makes pictures of clusters with many nodes, claims and waiting pods, for tests. Equal arguments make equal clusters.
package gpucluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// Driver is the name of the driver.
const Driver = "gpu.prism.dev"

// Now is the time of the picture.
var Now = time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)

// boards are the models of the GPUs of nodes, in turn, and their number on a node.
var boards = []struct {
	name string
	gpus int
}{{"h100-80", 8}, {"h100-80", 8}, {"h200-141", 8}, {"l40s", 4}}

// maker fills a store.
type maker struct {
	*clusterview.Store
	random *rand.Rand
	boards map[string]*gpu.Node
	claims int
}

// Fill puts nodes with GPUs in all modes, claims that use most of them, and waiting pods into a store. Namespaces replaces the namespaces
// of claims.
func Fill(ctx context.Context, store *clusterview.Store, nodes, waiting int, namespaces ...string) error {
	if len(namespaces) == 0 {
		namespaces = []string{"ml-training", "inference", "notebooks", "vision", "batch"}
	}
	m := &maker{Store: store, random: rand.New(rand.NewPCG(1, 2)), boards: map[string]*gpu.Node{}}
	for class, expression := range map[string]string{
		Driver: `type == "gpu"`, "mig-3g-40gb." + Driver: `profile == "3g.40gb"`, "mig-1g-10gb." + Driver: `profile == "1g.10gb"`, "mps." + Driver: `type == "mps"`,
	} {
		store.PutClass(classWith(class, fmt.Sprintf("device.driver == %q && device.attributes[%q].", Driver, Driver)+expression))
	}
	for i := range nodes {
		board := boards[i%len(boards)]
		discovered, err := m.board(ctx, board.name, board.gpus)
		if err != nil {
			return err
		}
		m.node(fmt.Sprintf("gpu-%c%02d", 'a'+i/100, i%100), i, discovered, namespaces)
	}
	for i := range waiting {
		m.pending(i, namespaces[i%len(namespaces)])
	}
	store.SetScope(clusterview.Scope{Nodes: true, TaintRules: true})
	return nil
}

func classWith(name, expression string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
	}}
}

// board returns the GPUs of a model as the plugin's inventory discovers them.
func (m *maker) board(ctx context.Context, name string, count int) (*gpu.Node, error) {
	if m.boards[name] == nil {
		n, err := model.New(model.Uniform("node", name, count))
		if err != nil {
			return nil, err
		}
		host := port.NewHost(n)
		inv := inventory.New(inventory.Options{Host: host, Open: host.Open})
		if err := inv.Refresh(ctx); err != nil {
			return nil, err
		}
		m.boards[name] = inv.Current().Node
	}
	return m.boards[name], nil
}

// node puts a node whose GPUs have UUIDs of their own.
func (m *maker) node(name string, i int, discovered *gpu.Node, namespaces []string) {
	of := *discovered
	of.GPUs = slices.Clone(discovered.GPUs)
	layout := gpu.Layout{}
	for g := range of.GPUs {
		id := fmt.Sprintf("%08x", m.random.Uint32())
		of.GPUs[g].UUID = "GPU-" + gpu.UUID(id) + of.GPUs[g].UUID[12:]
		layout[of.GPUs[g].UUID] = modes(i, &of.GPUs[g])
	}
	gpu.AssignIDs(of.GPUs)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	object.Spec.Unschedulable = i%31 == 5
	m.PutNode(object)
	pools := publish.Resources(publish.Options{DriverName: Driver, NodeName: name, Layout: layout}, &of).Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		bad := m.random.IntN(24) == 0
		for k, s := range pools[pool].Slices {
			slice := &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", strings.ReplaceAll(pool, "/", "-"), k)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: Driver, NodeName: &name, Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			}
			for d := range slice.Spec.Devices {
				if bad {
					taint := resourceapi.DeviceTaint{Key: Driver + "/recovery-action", Value: "gpu-reset", Effect: resourceapi.DeviceTaintEffectNoSchedule}
					slice.Spec.Devices[d].Taints = append(slice.Spec.Devices[d].Taints, taint)
				}
			}
			m.PutSlice(slice)
		}
		m.use(pool, pools[pool].Slices, namespaces)
	}
}

// modes are the modes of a GPU: on some nodes only whole GPUs.
func modes(node int, g *gpu.GPU) gpu.Modes {
	all := gpu.Modes{Whole: true}
	if node%4 == 1 {
		return all
	}
	all.TimeSlice = &gpu.Replicas{Count: 4}
	total := int64(g.Capacity.MemoryBytes) - gib
	all.MPS = &gpu.MPSSharing{MPSSize: gpu.MPSSize{
		Replicas: 8, Threads: gpu.MPSThreads{Total: 100}, Memory: gpu.MPSMemory{Total: total, Default: 8 * gib, Min: gib, Max: total, Step: gib},
	}}
	if g.MIG != nil {
		all.MIG = g.MIG.ProfileNames()
	}
	return all
}
