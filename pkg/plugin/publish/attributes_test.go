package publish_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// kinds are one device of each kind with specific attributes, as they are published under a driver's name.
func kinds(t *testing.T, driver string) map[string]resourceapi.Device {
	t.Helper()
	n, layout := sharedMIGDevice(t)
	g := &n.GPUs[0]
	g.MIG.Instances = append(g.MIG.Instances, gpu.Instance{
		ID: 2, Profile: 19, Placement: gpu.Placement{Start: 0, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: "MIG-2"}},
	})
	layout[g.UUID] = gpu.Modes{MIG: []string{"1g.10gb"}, MIGReplicas: map[string]int{"3g.40gb": 2}}
	free := migNode(t, "h100-80", 1)
	names := map[string]string{
		"gpu-" + g.ID + "-mig-9-4": "static MIG device for two claims", "gpu-" + g.ID + "-mig-19-0": "static MIG device",
		"gpu-" + g.ID + "-mig-19-3": "dynamic MIG device",
	}
	found := map[string]resourceapi.Device{}
	of := func(n *gpu.Node, layout gpu.Layout) {
		for _, d := range devicesIn(published(n, publish.Options{DriverName: driver, NodeName: nodeName, Layout: layout, Additional: gpu.Additional{Monitor: true, Perfmon: true}})) {
			kind := *d.Attributes["type"].StringValue
			if kind != "mig" {
				found[kind] = d
			} else if name := names[d.Name]; name != "" {
				found[name] = d
			}
		}
	}
	of(n, layout)
	of(free, timeSliced(free, 2, andWhole))
	require.Len(t, found, 7, "%v", slices.Sorted(maps.Keys(found)))
	return found
}

// TestAttributes_EachKindOfDevice_ExactKeys: an expression that meets a missing key fails for the whole cluster, and each key costs the
// scheduler. So both are decided here. At most 8 of a domain are cheap; claims for NVIDIA's driver may select by brand.
func TestAttributes_EachKindOfDevice_ExactKeys(t *testing.T) {
	t.Parallel()
	for driver, dynamic := range map[string][]resourceapi.QualifiedName{
		driverName: dynamicMIGKeys, "gpu.nvidia.com": append(slices.Clone(dynamicMIGKeys), "brand"),
	} {
		for kind, d := range kinds(t, driver) {
			want := append(slices.Clone(ownKeys), standardKeys...)
			switch kind {
			case "dynamic MIG device":
				want = append(slices.Clone(dynamic), standardKeys...)
			case "perfmon":
				want = append(slices.Clone(dynamicMIGKeys), standardKeys...)
			case "monitor":
				want = []resourceapi.QualifiedName{"type", "driverVersion", "cudaDriverVersion"}
			}
			assert.ElementsMatch(t, want, slices.Collect(maps.Keys(d.Attributes)), "%s of %s", kind, driver)
		}
	}
	assert.LessOrEqual(t, len(dynamicMIGKeys), 8)
}

// TestAttributes_GuardedSelector_NoError: the selector that the documentation gives for MIG devices that may lack the attribute, on the
// static and the dynamic devices of a GPU, in the scheduler's environment for expressions.
func TestAttributes_GuardedSelector_NoError(t *testing.T) {
	t.Parallel()
	static, layout := sharedMIGDevice(t)
	layout[static.GPUs[0].UUID] = gpu.Modes{MIG: []string{"3g.40gb"}}
	for expression, want := range map[string]int{
		`"index" in device.attributes["gpu.prism.dev"] && device.attributes["gpu.prism.dev"].index == 0`:        1,
		`!("index" in device.attributes["gpu.prism.dev"]) || device.attributes["gpu.prism.dev"].index == 7`:     1,
		`device.attributes["gpu.prism.dev"].?index.orValue(-1) == 0`:                                            1,
		`device.attributes["gpu.prism.dev"].?replicas.orValue(1) == 1`:                                          2,
		`device.attributes["gpu.prism.dev"].?replicas.orValue(1) > 1`:                                           0,
		`device.attributes["gpu.prism.dev"].?brand.orValue("") == "Nvidia"`:                                     1,
		`device.attributes["resource.kubernetes.io"].pciBusID == "0000:1b:00.0"`:                                2,
		`device.attributes["gpu.prism.dev"].parentUUID == "` + string(static.GPUs[0].UUID) + `"`:                2,
		`device.attributes["gpu.prism.dev"].cudaDriverVersion.isGreaterThan(semver("12.0.0"))`:                  2,
		`device.capacity["gpu.prism.dev"].migMemory.compareTo(quantity("39Gi")) >= 0`:                           2,
		`"p3g40gb" in device.capacity["gpu.prism.dev"] && device.capacity["gpu.prism.dev"].p3g40gb.isInteger()`: 2,
	} {
		s := newScheduler(t, poolsOf(static, layout))
		got := 0
		for s.allocate(request("mig.gpu.prism.dev", 1, expression)) != nil {
			got++
		}
		assert.Equal(t, want, got, expression)
	}
}
