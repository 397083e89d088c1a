package publish_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/allocator"
)

// profileClasses are the DeviceClasses of MIG profiles by name, with the profile of each.
type profileClasses map[string]string

func profileClassesOf(m *gpu.MIG) profileClasses {
	all := profileClasses{}
	for _, profile := range m.ProfileNames() {
		name, _ := classes.ProfileClass(driverName, profile)
		all[name] = profile
	}
	return all
}

func (c profileClasses) List() ([]*resourceapi.DeviceClass, error) { return classesByName{}.List() }

func (c profileClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	profile, ok := c[name]
	if !ok {
		return classesByName{}.Get(name)
	}
	_, expression := classes.ProfileClass(driverName, profile)
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{selector(expression)}},
	}, nil
}

// TestProfileClass_Selector_ItsProfileOnly: of all devices of a node, whole GPUs and shares too, the class of a profile selects exactly the MIG
// devices of that profile, and each MIG device is in one class.
func TestProfileClass_Selector_ItsProfileOnly(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 2)
		layout := everything(n)
		layout[n.GPUs[0].UUID] = gpu.Modes{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: n.GPUs[0].MIG.ProfileNames()}
		listed := profileClassesOf(n.GPUs[0].MIG)
		require.Len(t, listed, len(n.GPUs[0].MIG.ProfileNames()), "%s: a class for each profile", board)
		selected, migDevicesOfGPU := 0, 0
		for class, profile := range listed {
			_, expression := classes.ProfileClass(driverName, profile)
			compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
			require.Nil(t, compiled.Error, fmt.Sprint(compiled.Error))
			for _, slice := range poolsOf(n, layout) {
				devices, err := allocator.Devices(slice)
				require.NoError(t, err)
				for i, d := range slice.Spec.Devices {
					matches, _, err := compiled.DeviceMatches(t.Context(), devices[i])
					require.NoError(t, err, "%s: %s", class, d.Name)
					assert.Equal(t, *d.Attributes["type"].StringValue == "mig" && *d.Attributes["profile"].StringValue == profile, matches, "%s: %s", class, d.Name)
					if matches {
						selected++
					}
				}
			}
		}
		for _, d := range devicesIn(poolsOf(n, layout)) {
			if *d.Attributes["type"].StringValue == "mig" {
				migDevicesOfGPU++
			}
		}
		assert.NotZero(t, selected)
		assert.Equal(t, migDevicesOfGPU, selected, board)
	}
}

// TestProfileClass_AllocatableSets_AsHardware: by the classes of profiles the scheduler reaches exactly the sets of MIG devices that the hardware can
// hold, as TestCounters_AllocatableSets_AsHardware shows for mig.<driver>.
func TestProfileClass_AllocatableSets_AsHardware(t *testing.T) {
	t.Parallel()
	// One board of each shape: TestProfileClass_Selector_ItsProfileOnly covers the names of all of them.
	for _, board := range []string{"a30", "h100-80"} {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 1)
			n.GPUs[0].MIG.Mode = gpu.MIGMode{}
			e := newEnumeration(t, board, n)
			e.ask, e.s.classes = byProfileClass, profileClassesOf(n.GPUs[0].MIG)
			e.devices = slices.DeleteFunc(slices.Clone(e.devices), func(d gpu.Device) bool { return d.Type() != gpu.TypeMIG })
			e.grow(nil)
			sets := 2319
			if board == "a30" {
				sets = 76
			}
			assert.Equal(t, sets, e.sets, "the sets of TestCounters_AllocatableSets_AsHardware without the whole GPU and its shares")
		})
	}
}

// byProfileClass asks for a MIG device by the class of its profile.
func byProfileClass(d gpu.Device) resourceapi.ExactDeviceRequest {
	mig, _ := d.(gpu.MIGDevice)
	class, _ := classes.ProfileClass(driverName, mig.Profile.Name)
	return request(class, 1)
}
