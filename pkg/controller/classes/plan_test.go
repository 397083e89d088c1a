package classes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

const (
	driver = "gpu.prism.dev"
	// mpsConfig is an example of the fork of NVIDIA's device plugin with MPS.
	mpsConfig = `
version: v1
sharing:
  mps:
    resources:
    - {name: nvidia.com/gpu, rename: nvidia.com/gpu-2gb, memoryGB: 2, replicas: 2, devices: ["0"]}
`
	shared = `
version: v1
sharing:
  timeSlicing:
    renameByDefault: %t
    failRequestsGreaterThanOne: %t
    resources: [{name: nvidia.com/gpu, replicas: 10}]
`
	nodeHeader = "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
)

func sharedConfig(rename, fail bool) string { return fmt.Sprintf(shared, rename, fail) }

func planned(t *testing.T, in Input) *Plan {
	t.Helper()
	in.Driver = driver
	plan, err := NewPlan(in)
	require.NoError(t, err)
	return plan
}

// selectors are the selectors of the planned classes with a resource name, by that name and without their common prefix.
func selectors(t *testing.T, plan *Plan) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, class := range plan.Classes {
		assert.True(t, owned(class, driver), class.Name)
		assert.Empty(t, validation.IsDNS1123Subdomain(class.Name))
		assert.True(t, strings.HasSuffix(class.Name, "."+driver), "the chart's policy for DeviceClasses denies %s", class.Name)
		text, guarded := strings.CutPrefix(class.Spec.Selectors[0].CEL.Expression, `device.driver == "gpu.prism.dev" && `)
		assert.True(t, guarded, text)
		if resourceOf(class) == "" {
			continue
		}
		found[resourceOf(class)] = strings.ReplaceAll(text, `device.attributes["gpu.prism.dev"].`, "")
	}
	return found
}

func TestNewPlan_Configurations_NamesAndSelectors(t *testing.T) {
	const whole = `type == "gpu"`
	for name, test := range map[string]struct {
		configs  map[string]string
		profiles []string
		want     map[string]string
		refused  []string
	}{
		"no entry": {nil, nil, map[string]string{wholeGPU: whole}, nil},
		"whole":    {map[string]string{"a": nodeHeader}, nil, map[string]string{wholeGPU: whole}, nil},
		"MPS":      {map[string]string{"a": mpsConfig}, nil, map[string]string{wholeGPU: whole, "nvidia.com/gpu-2gb": `type == "mps" && shareName == "gpu-2gb"`}, []string{"nvidia.com/gpu-2gb"}},
		"MPS, several allowed": {map[string]string{"a": nodeHeader + "gpus: [{modes: [whole, mps], mps: {replicas: 2, resourceName: example.com/part}, failRequestsGreaterThanOne: false}]"}, nil,
			map[string]string{wholeGPU: whole, "example.com/part": `type == "mps" && shareName == "none"`}, []string{"example.com/part"}},
		"MPS, not renamed": {map[string]string{"a": "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"}, nil,
			map[string]string{wholeGPU: `((type == "gpu") || (type == "mps" && shareName == "gpu"))`}, nil},
		"not renamed": {map[string]string{"a": sharedConfig(false, true)}, nil, map[string]string{wholeGPU: `((type == "gpu") || (type == "timeslice" && shareName == "none"))`}, nil},
		"renamed":     {map[string]string{"a": sharedConfig(true, false)}, nil, map[string]string{wholeGPU: whole, "nvidia.com/gpu.shared": `type == "timeslice" && shareName == "gpu-shared"`}, nil},
		"refused":     {map[string]string{"a": sharedConfig(true, true)}, nil, map[string]string{wholeGPU: whole, "nvidia.com/gpu.shared": `type == "timeslice" && shareName == "gpu-shared"`}, []string{"nvidia.com/gpu.shared"}},
		"refused by one": {map[string]string{"a": sharedConfig(true, true), "b": sharedConfig(true, false)}, nil,
			map[string]string{wholeGPU: whole, "nvidia.com/gpu.shared": `type == "timeslice" && shareName == "gpu-shared"`}, nil},
		"all entries count": {map[string]string{"a": sharedConfig(false, false), "b": mpsConfig}, nil, map[string]string{
			wholeGPU: `((type == "gpu") || (type == "timeslice" && shareName == "none"))`, "nvidia.com/gpu-2gb": `type == "mps" && shareName == "gpu-2gb"`}, []string{"nvidia.com/gpu-2gb"}},
		"none":   {map[string]string{"a": "version: v1\nflags: {migStrategy: none}\n"}, []string{"1g.10gb"}, map[string]string{wholeGPU: whole}, nil},
		"single": {map[string]string{"a": "version: v1\nflags: {migStrategy: single}\n"}, []string{"1g.10gb"}, map[string]string{wholeGPU: `((type == "gpu") || (type == "mig"))`}, nil},
		"single, shared": {map[string]string{"a": "version: v1\nflags: {migStrategy: single}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"}, nil,
			map[string]string{wholeGPU: `((type == "gpu") || (type == "mig") || (type == "timeslice" && shareName == "none"))`}, nil},
		"single, renamed": {map[string]string{"a": "version: v1\nflags: {migStrategy: single}\nsharing: {timeSlicing: {renameByDefault: true, " +
			"failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}"}, nil, map[string]string{
			wholeGPU:                `((type == "gpu") || (type == "mig" && ?replicas.orValue(1) == 1))`,
			"nvidia.com/gpu.shared": `((type == "mig" && ?replicas.orValue(1) > 1) || (type == "timeslice" && shareName == "gpu-shared"))`},
			[]string{"nvidia.com/gpu.shared"}},
		"mixed": {map[string]string{"a": "version: v1\nflags: {migStrategy: mixed}\n"}, []string{"1g.10gb", "1g.10gb+me"}, map[string]string{
			wholeGPU: whole, "nvidia.com/mig-1g.10gb": `type == "mig" && profile == "1g.10gb"`, "nvidia.com/mig-1g.10gb.me": `type == "mig" && profile == "1g.10gb+me"`}, nil},
		"profiles": {map[string]string{"a": nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]"}, nil, map[string]string{
			wholeGPU: whole, "nvidia.com/mig-2g.20gb": `type == "mig" && profile == "2g.20gb"`}, nil},
		"shared MIG devices": {map[string]string{"a": "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, failRequestsGreaterThanOne: true, " +
			"resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}"}, []string{"1g.10gb", "2g.20gb"}, map[string]string{
			wholeGPU: whole, "nvidia.com/mig-1g.10gb": `type == "mig" && profile == "1g.10gb" && ?replicas.orValue(1) == 1`,
			"nvidia.com/mig-1g.10gb.shared": `type == "mig" && profile == "1g.10gb" && ?replicas.orValue(1) > 1`, "nvidia.com/mig-2g.20gb": `type == "mig" && profile == "2g.20gb"`},
			[]string{"nvidia.com/mig-1g.10gb.shared"}},
		"shared MIG devices with one name": {map[string]string{"a": nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 2}}}]"}, []string{"1g.10gb"}, map[string]string{
			wholeGPU: whole, "nvidia.com/mig-1g.10gb": `type == "mig" && profile == "1g.10gb"`}, nil},
		"shared MIG devices without names": {map[string]string{"a": "version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}"},
			nil, map[string]string{wholeGPU: whole}, nil},
		"share name": {map[string]string{"a": nodeHeader + "gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: slow, resourceName: example.com/Slow_GPU}}]"}, nil,
			map[string]string{wholeGPU: whole, "example.com/Slow_GPU": `type == "timeslice" && shareName == "slow"`}, []string{"example.com/Slow_GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planned(t, Input{Configs: test.configs, Profiles: test.profiles})
			assert.Empty(t, cmp.Diff(test.want, selectors(t, plan)))
			assert.Empty(t, plan.Problems)
			var refused []string
			if plan.Policy != nil {
				for _, rule := range plan.Policy.Spec.Validations {
					refused = append(refused, strings.Split(rule.Expression, `"`)[1])
				}
				assert.Equal(t, plan.Policy.Name, plan.Binding.Spec.PolicyName)
			}
			assert.Equal(t, test.refused, refused)
		})
	}
}

// The test uses the scheduler's CEL evaluator. Devices of other drivers lack the attributes.
func TestNewPlan_Selectors_MatchIntendedDevices(t *testing.T) {
	device := func(of, kind, profile, share string, replicas int64) dracel.Device {
		return dracel.Device{Driver: of, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": {StringValue: &kind}, "profile": {StringValue: &profile}, "shareName": {StringValue: &share}, "replicas": {IntValue: &replicas},
		}}
	}
	devices := map[string]dracel.Device{
		"whole": device(driver, "gpu", "none", "none", 1), "monitor": device(driver, "monitor", "none", "none", 1),
		"MIG device": device(driver, "mig", "1g.10gb", "none", 1), "shared MIG device": device(driver, "mig", "1g.10gb", "none", 2),
		"replica": device(driver, "timeslice", "none", "none", 10), "renamed": device(driver, "timeslice", "none", "gpu-shared", 10),
		"share": device(driver, "mps", "none", "gpu-2gb", 2), "other driver": device("gpu.example.com", "gpu", "none", "none", 1),
		"bare": {Driver: "net.example.com"},
	}
	sharedMIG := "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}"
	plan := planned(t, Input{Configs: map[string]string{
		"a": sharedConfig(false, false), "b": sharedConfig(true, false), "c": mpsConfig, "d": sharedMIG}, Profiles: []string{"1g.10gb"}})
	want := map[string][]string{
		wholeGPU: {"replica", "whole"}, "nvidia.com/gpu.shared": {"renamed"}, "nvidia.com/gpu-2gb": {"share"},
		"nvidia.com/mig-1g.10gb": {"MIG device"}, "nvidia.com/mig-1g.10gb.shared": {"shared MIG device"},
		"": {"MIG device", "shared MIG device"}, // the class of the profile
	}
	require.Len(t, plan.Classes, len(want))
	for _, class := range plan.Classes {
		compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(class.Spec.Selectors[0].CEL.Expression, dracel.Options{})
		require.Nil(t, compiled.Error, fmt.Sprint(compiled.Error))
		var taken []string
		for name, device := range devices {
			matches, _, err := compiled.DeviceMatches(t.Context(), device)
			require.NoError(t, err, name)
			if matches {
				taken = append(taken, name)
			}
		}
		slices.Sort(taken)
		assert.Equal(t, want[resourceOf(class)], taken, resourceOf(class))
	}
}

// stored are the DeviceClasses of a plan in the API server.
func stored(plan *Plan) []resourceapi.DeviceClass {
	var classes []resourceapi.DeviceClass
	for _, class := range plan.Classes {
		classes = append(classes, *class)
	}
	return classes
}

// An entry that became invalid keeps its names, while the other entries change. The state is in the classes, so it survives the process.
func TestNewPlan_EntryBecomesInvalid_NamesKept(t *testing.T) {
	first := planned(t, Input{Configs: map[string]string{"a": sharedConfig(true, true), "b": mpsConfig}})
	second := planned(t, Input{Configs: map[string]string{"a": "version: v7", "b": sharedConfig(false, false)}, Classes: stored(first)})
	third := planned(t, Input{Configs: map[string]string{"a": "version: v7", "b": sharedConfig(false, false)}, Classes: stored(second)})
	for _, plan := range []*Plan{second, third} {
		assert.Equal(t, map[string]string{
			wholeGPU: `((type == "gpu") || (type == "timeslice" && shareName == "none"))`, "nvidia.com/gpu.shared": `type == "timeslice" && shareName == "gpu-shared"`,
		}, selectors(t, plan))
		require.NotNil(t, plan.Policy)
		require.Len(t, plan.Problems, 1)
		assert.Equal(t, ReasonNodeConfigInvalid, plan.Problems[0].Reason)
		assert.Regexp(t, "^Node configuration is invalid: .*entry a.*v7.*; its extended resource names are unchanged$", plan.Problems[0].Note)
	}
	assert.Equal(t, map[string]string{wholeGPU: `type == "gpu"`}, selectors(t, planned(t, Input{Configs: map[string]string{"b": ""}, Classes: nil})))
	gone := planned(t, Input{Configs: map[string]string{"b": mpsConfig}, Classes: stored(third)})
	assert.Equal(t, []string{wholeGPU, "nvidia.com/gpu-2gb"}, resources(gone), "a removed entry has no names")
}

func resources(plan *Plan) []string {
	var all []string
	for _, class := range plan.Classes {
		if resource := resourceOf(class); resource != "" {
			all = append(all, resource)
		}
	}
	return all
}

// Removing a node keeps the name; another strategy removes it.
func TestNewPlan_ProfileNoLongerPublished_NameKept(t *testing.T) {
	configs := map[string]string{"a": "version: v1\nflags: {migStrategy: mixed}\n"}
	first := planned(t, Input{Configs: configs, Profiles: []string{"1g.10gb"}})
	second := planned(t, Input{Configs: configs, Classes: stored(first)})
	assert.Equal(t, []string{wholeGPU, "nvidia.com/mig-1g.10gb"}, resources(second))
	third := planned(t, Input{Configs: map[string]string{"a": "version: v1\n"}, Classes: stored(second), Profiles: []string{"1g.10gb"}})
	assert.Equal(t, []string{wholeGPU}, resources(third))
}

func unmanagedClass(name, resource, selector string) resourceapi.DeviceClass {
	class := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}}}
	if resource != "" {
		class.Spec.ExtendedResourceName = &resource
	}
	return class
}

// A name of an unmanaged DeviceClass is not used; the other names are.
func TestNewPlan_UnmanagedClass_NotChanged(t *testing.T) {
	const same = "device.driver == \"gpu.prism.dev\" &&\n  device.attributes[\"gpu.prism.dev\"].type == \"gpu\"\n"
	otherRelease := unmanagedClass("gpu.nvidia.com.gpu.example.com", wholeGPU, same)
	otherRelease.Labels = labels("gpu.example.com")
	for name, test := range map[string]struct {
		class resourceapi.DeviceClass
		want  []string
		note  string
	}{
		"same name and devices":    {unmanagedClass("gpu.prism.dev", wholeGPU, same), []string{"nvidia.com/gpu-2gb"}, ""},
		"same name, other devices": {unmanagedClass("other", "nvidia.com/gpu-2gb", same), []string{wholeGPU}, "nvidia.com/gpu-2gb is the extended resource name of DeviceClass other, which the controller does not manage: requests get the devices of the newest"},
		"another driver":           {otherRelease, []string{"nvidia.com/gpu-2gb"}, ""},
		"class name taken":         {unmanagedClass("gpu-2gb.nvidia.com.gpu.prism.dev", "", same), []string{wholeGPU}, "DeviceClass gpu-2gb.nvidia.com.gpu.prism.dev is not managed by the controller"},
		"unrelated":                {unmanagedClass("other", "nvidia.com/vgpu", same), []string{wholeGPU, "nvidia.com/gpu-2gb"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planned(t, Input{Configs: map[string]string{"a": mpsConfig}, Classes: []resourceapi.DeviceClass{test.class}})
			assert.Equal(t, test.want, resources(plan))
			if test.note == "" {
				assert.Empty(t, plan.Problems)
				return
			}
			require.Len(t, plan.Problems, 1)
			assert.Equal(t, ReasonDeviceClassNameTaken, plan.Problems[0].Reason)
			assert.Contains(t, plan.Problems[0].Note, test.note)
		})
	}
}

func TestNewPlan_NamesOverlap_Reported(t *testing.T) {
	slow := nodeHeader + "gpus: [{modes: [timeslice], timeSlice: {replicas: 2, resourceName: nvidia.com/slow}}]"
	for want, configs := range map[string]map[string]string{
		"Extended resources nvidia.com/gpu, nvidia.com/slow request the same shares of type timeslice with shareName none": {"a": sharedConfig(false, false), "b": slow},
		"flags.migStrategy is single in entry b and none in entry a":                                                       {"a": "version: v1", "b": "version: v1\nflags: {migStrategy: single}"},
		"Extended resources nvidia.com/mig-1g.10gb, nvidia.com/mig-1g.10gb.shared request the same shared MIG devices of profile 1g.10gb": {
			"a": nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 2}}}]",
			"b": nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 2}, resourceNames: {1g.10gb: nvidia.com/mig-1g.10gb.shared}}}]"},
	} {
		plan := planned(t, Input{Configs: configs})
		require.Len(t, plan.Problems, 1, want)
		assert.Equal(t, ReasonExtendedResourcesOverlap, plan.Problems[0].Reason)
		assert.Contains(t, plan.Problems[0].Note, want)
	}
}

func TestClassName_Resources_ValidOrHashed(t *testing.T) {
	long := strings.Repeat("a", 63)
	for resource, want := range map[string]string{
		"nvidia.com/gpu":                              "gpu.nvidia.com.gpu.prism.dev",
		"nvidia.com/mig-1g.24gb.me.all":               "mig-1g.24gb.me.all.nvidia.com.gpu.prism.dev",
		"nvidia.com/My_GPU":                           "resource-fff0fe059924db1a.gpu.prism.dev",
		strings.Repeat("a.", 100) + "example/" + long: "resource-2729f29cede9c812.gpu.prism.dev",
	} {
		assert.Equal(t, want, className(resource, driver))
	}
}
