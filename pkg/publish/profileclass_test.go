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
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/prism-gpu/prism/pkg/controller"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// profileClasses are the DeviceClasses of MIG profiles by name, with the profile of each.
type profileClasses map[string]string

func profileClassesOf(m *gpu.MIG) profileClasses {
	all := profileClasses{}
	for _, profile := range m.ProfileNames() {
		name, _ := controller.ProfileClass(driverName, profile)
		all[name] = profile
	}
	return all
}

func (c profileClasses) List() ([]*resourceapi.DeviceClass, error) { return classes{}.List() }

func (c profileClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	profile, ok := c[name]
	if !ok {
		return classes{}.Get(name)
	}
	_, expression := controller.ProfileClass(driverName, profile)
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{selector(expression)}},
	}, nil
}

// allocatorByProfile knows the classes of profiles and no others.
func (s *scheduler) allocatorByProfile(listed profileClasses) structured.Allocator {
	s.t.Helper()
	allocator, err := structured.NewAllocator(s.t.Context(), s.features,
		structured.AllocatedState{AllocatedDevices: s.taken, AllocatedSharedDeviceIDs: s.shares, AggregatedCapacity: s.consumed}, listed, s.slices, s.cache)
	require.NoError(s.t, err)
	return allocator
}

// TestProfileClass_SelectsItsProfile: of all devices of a node, whole GPUs and shares too, the class of a profile selects exactly the MIG
// devices of that profile, and each MIG device is in one class.
func TestProfileClass_SelectsItsProfile(t *testing.T) {
	t.Parallel()
	for _, board := range migBoards(t) {
		n := migNode(t, board, 2)
		layout := everything(n)
		layout[n.GPUs[0].UUID] = gpu.Offer{Whole: true, TimeSlice: &gpu.Replicas{Count: 2}, MIG: n.GPUs[0].MIG.ProfileNames()}
		listed := profileClassesOf(n.GPUs[0].MIG)
		require.Len(t, listed, len(n.GPUs[0].MIG.ProfileNames()), "%s: a class for each profile", board)
		selected, slicesOfGPU := 0, 0
		for class, profile := range listed {
			_, expression := controller.ProfileClass(driverName, profile)
			compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
			require.Nil(t, compiled.Error, fmt.Sprint(compiled.Error))
			for _, slice := range poolsOf(n, layout) {
				for _, d := range slice.Spec.Devices {
					matches, _, err := compiled.DeviceMatches(t.Context(), cel.Device{Driver: driverName, Attributes: d.Attributes, Capacity: d.Capacity})
					require.NoError(t, err, "%s: %s", class, d.Name)
					assert.Equal(t, *d.Attributes["type"].StringValue == "mig" && *d.Attributes["profile"].StringValue == profile, matches, "%s: %s", class, d.Name)
					if matches {
						selected++
					}
				}
			}
		}
		for _, slice := range poolsOf(n, layout) {
			for _, d := range slice.Spec.Devices {
				if *d.Attributes["type"].StringValue == "mig" {
					slicesOfGPU++
				}
			}
		}
		assert.NotZero(t, selected)
		assert.Equal(t, slicesOfGPU, selected, board)
	}
}

// TestProfileClass_JointlyAllocatable: by the classes of profiles the scheduler reaches exactly the sets of MIG devices that the hardware can
// hold, as TestJointlyAllocatable shows for mig.<driver>.
func TestProfileClass_JointlyAllocatable(t *testing.T) {
	t.Parallel()
	boards := migBoards(t)
	if testing.Short() {
		boards = []string{"a30", "h100-80"}
	}
	for _, board := range boards {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			n := migNode(t, board, 1)
			n.GPUs[0].MIG.Mode = gpu.MIGMode{}
			e := byProfile{newEnumeration(t, board, n), profileClassesOf(n.GPUs[0].MIG)}
			e.devices = slices.DeleteFunc(slices.Clone(e.devices), func(d gpu.Device) bool { return d.Type() != gpu.TypeMIG })
			e.grow(nil)
			sets := 2319
			if board == "a30" {
				sets = 76
			}
			assert.Equal(t, sets, e.sets, "those of TestJointlyAllocatable without the whole GPU and its shares")
		})
	}
}

// byProfile asks for MIG devices by the class of their profile.
type byProfile struct {
	*enumeration
	listed profileClasses
}

// grow asks for every device that comes after those of a set that is taken.
func (e byProfile) grow(set []gpu.Device) {
	e.sets++
	first := 0
	if len(set) > 0 {
		first = slices.Index(e.devices, set[len(set)-1]) + 1
	}
	for _, d := range e.devices[first:] {
		next := append(slices.Clone(set), d)
		got := e.allocates(next)
		if want := e.holds(next); (got != nil) != want {
			require.Equal(e.t, want, got != nil, "%v", namesOf(next))
		}
		if got != nil {
			require.Equal(e.t, string(d.Name()), got[0].Device)
			e.s.hold(got[0])
			e.grow(next)
			e.s.release(got[0])
		}
	}
}

// allocates asks for the last device of a set whose others are taken, of which alone the scheduler knows.
func (e byProfile) allocates(set []gpu.Device) []resourceapi.DeviceRequestAllocationResult {
	e.t.Helper()
	shown := *e.s.slices[1]
	shown.Spec.Devices = nil
	for _, name := range namesOf(set) {
		shown.Spec.Devices = append(shown.Spec.Devices, e.published[string(name)])
	}
	all := e.s.slices
	defer func() { e.s.slices = all }()
	e.s.slices = []*resourceapi.ResourceSlice{all[0], &shown}
	mig, ok := set[len(set)-1].(gpu.MIGDevice)
	require.True(e.t, ok)
	class, _ := controller.ProfileClass(driverName, mig.Profile.Name)
	return e.s.offered(e.s.allocatorByProfile(e.listed), request(class, 1))
}
