package classes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// profileNames are the planned classes of MIG profiles, by name, each with its resource name.
func profileNames(t *testing.T, plan *Plan) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, class := range plan.Classes {
		if o := originOf(class); o != nil {
			name, selector := ProfileClass(driver, o.Profile)
			require.Equal(t, name, class.Name)
			require.True(t, hasOnlySelector(class, selector), class.Name)
			found[name] = resourceOf(class)
		}
	}
	return found
}

func TestProfileClass_Profiles_NameAndSelector(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb": "mig-1g-10gb", "1g.10gb+me": "mig-1g-10gb-me", "1g.24gb+me.all": "mig-1g-24gb-me-all", "1g.24gb-me": "mig-1g-24gb-no-me",
		"4g.96gb+gfx": "mig-4g-96gb-gfx",
	} {
		name, selector := ProfileClass(driver, profile)
		assert.Equal(t, want+".gpu.prism.dev", name)
		assert.Equal(t, `device.driver == "gpu.prism.dev" && device.attributes["gpu.prism.dev"].type == "mig" && `+
			`device.attributes["gpu.prism.dev"].profile == "`+profile+`"`, selector)
	}
}

// The profiles differ only in characters that class names cannot contain. Some of them exist on no GPU.
func TestProfileClass_SimilarProfiles_NamesDiffer(t *testing.T) {
	profiles := map[string]string{}
	suffixes := []string{"", "+me", "-me", ".me", "+no.me", "+no", "-no", "-no.me", "+me.all", "+me+all", "+me-all", "-me.all", "-me-all", "-me+all", "-no-me", "+gfx", "+ME"}
	for _, base := range []string{"1g.10gb", "11g.0gb", "1g-10gb", "1g.10gb+averylongsuffixthatmakesaverylongname"} {
		for _, suffix := range suffixes {
			name, _ := ProfileClass(driver, base+suffix)
			assert.Empty(t, validation.IsDNS1123Subdomain(name))
			assert.Empty(t, profiles[name], "%s is also the class of %s", name, base+suffix)
			profiles[name] = base + suffix
		}
	}
	assert.Len(t, profiles, 4*len(suffixes))
}

// Profiles in entries and published profiles get a class with any strategy. The class gets the resource name of the profile's MIG devices
// if the name requests all of them.
func TestNewPlan_Profiles_ClassOfEach(t *testing.T) {
	const small, medium, small2, resource = "mig-1g-10gb." + driver, "mig-2g-20gb." + driver, "mig-1g-10gb-me." + driver, "nvidia.com/mig-"
	sharedMIG := "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}"
	for name, test := range map[string]struct {
		config   string
		profiles []string
		want     map[string]string
		classes  int
	}{
		"none":                 {nodeHeader, nil, map[string]string{}, 1},
		"named":                {nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [2g.20gb, 1g.10gb+me]}}]", nil, map[string]string{medium: resource + "2g.20gb", small2: resource + "1g.10gb.me"}, 3},
		"strategy none":        {nodeHeader + "flags: {migStrategy: none}\ngpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]", []string{"1g.10gb"}, map[string]string{medium: "", small: ""}, 3},
		"strategy single":      {nodeHeader + "flags: {migStrategy: single}\ngpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]", nil, map[string]string{medium: ""}, 2},
		"published":            {"version: v1", []string{"1g.10gb"}, map[string]string{small: ""}, 2},
		"both, mixed":          {nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]", []string{"1g.10gb"}, map[string]string{small: resource + "1g.10gb"}, 2},
		"shared":               {nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 2}}}]", nil, map[string]string{small: resource + "1g.10gb"}, 2},
		"shared, all":          {nodeHeader + "gpus: [{mig: {replicas: {'*': 2}}}]", nil, map[string]string{}, 1},
		"separated":            {sharedMIG, nil, map[string]string{small: ""}, 3},
		"separated, published": {sharedMIG, []string{"1g.10gb", "2g.20gb"}, map[string]string{small: "", medium: resource + "2g.20gb"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planned(t, Input{Configs: map[string]string{"a": test.config}, Profiles: test.profiles})
			assert.Equal(t, test.want, profileNames(t, plan))
			assert.Len(t, plan.Classes, test.classes)
			assert.Empty(t, plan.Problems)
			bare := func(c *resourceapi.DeviceClass) bool { return resourceOf(c) == "" }
			if i := slices.IndexFunc(plan.Classes, bare); i >= 0 {
				assert.False(t, slices.ContainsFunc(plan.Classes[i:], func(c *resourceapi.DeviceClass) bool { return !bare(c) }), "classes with resource names come first")
			}
		})
	}
}

// The class of a published profile stays; the class of a profile in an entry stays as long as the entry contains it, or contained it and is
// now invalid.
func TestNewPlan_ProfileNoLongerPublished_ClassKept(t *testing.T) {
	const small, medium = "mig-1g-10gb." + driver, "mig-2g-20gb." + driver
	named := nodeHeader + "flags: {migStrategy: none}\ngpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]"
	first := planned(t, Input{Configs: map[string]string{"a": named, "b": "version: v1"}, Profiles: []string{"1g.10gb"}})
	require.Equal(t, map[string]string{small: "", medium: ""}, profileNames(t, first))
	for text, want := range map[string]map[string]string{
		named: {small: "", medium: ""}, "version: v7": {small: "", medium: ""}, "version: v1": {small: ""},
	} {
		second := planned(t, Input{Configs: map[string]string{"a": text, "b": "version: v1"}, Classes: stored(first)})
		assert.Equal(t, want, profileNames(t, second), text)
		third := planned(t, Input{Configs: map[string]string{"a": text, "b": "version: v1"}, Classes: stored(second)})
		assert.Equal(t, want, profileNames(t, third), "the state is in the classes: %s", text)
	}
	other := planned(t, Input{Configs: map[string]string{"a": "version: v1", "b": "version: v7"}, Classes: stored(first)})
	assert.Equal(t, map[string]string{small: ""}, profileNames(t, other), "the invalid entry never had the profile")
	unpublished := slices.DeleteFunc(stored(first), func(c resourceapi.DeviceClass) bool { return c.Name == small })
	again := planned(t, Input{Configs: map[string]string{"a": named}, Classes: unpublished})
	assert.Equal(t, map[string]string{medium: ""}, profileNames(t, again), "a deleted class of a profile that is not published is not created again")
}

// A compromised node can neither fill the cluster with classes nor remove classes of other profiles.
func TestNewPlan_TooManyPublishedProfiles_Limited(t *testing.T) {
	first := planned(t, Input{Profiles: []string{"7g.80gb"}})
	many := []string{"7g.80gb", "8g.90gb"}
	for i := range 2 * maxPublished {
		many = append(many, fmt.Sprintf("1g.%dgb", 1000+i))
	}
	slices.Sort(many)
	second := planned(t, Input{Configs: map[string]string{"a": "version: v1"}, Profiles: many, Classes: stored(first)})
	assert.Len(t, profileNames(t, second), maxPublished)
	assert.Contains(t, profileNames(t, second), "mig-7g-80gb."+driver, "a profile with a class keeps it")
	assert.Less(t, len(second.Classes), 2*maxPublished, "with resource names")
	require.Len(t, second.Problems, 1)
	assert.Equal(t, Problem{Reason: ReasonTooManyMIGProfiles, Note: fmt.Sprintf("Nodes publish MIG devices of %d profiles beyond the limit of %d DeviceClasses, such as "+
		"%q; find the node with such devices in its ResourceSlices of driver %s", maxPublished+2, maxPublished, "1g.1063gb", driver)}, second.Problems[0])
	third := planned(t, Input{Profiles: many, Classes: stored(second)})
	assert.Equal(t, profileNames(t, second), profileNames(t, third))
}

// A class of a version without profile classes is replaced; its recorded uses and the configuration that a user added are kept.
func TestNewPlan_ClassOfEarlierVersion_ReplacedByProfileClass(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	old := unmanagedClass(className(resource, driver), resource, "true")
	old.Labels = labels(driver)
	old.Annotations = map[string]string{annotationUses: `{"a":[{"type":"mig","profile":"1g.10gb"}]}`}
	old.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "other.example.com"}}}}
	for _, text := range []string{"version: v7", nodeHeader} {
		plan := planned(t, Input{Configs: map[string]string{"a": text}, Classes: []resourceapi.DeviceClass{old}})
		require.Equal(t, map[string]string{"mig-1g-10gb." + driver: resource}, profileNames(t, plan), text)
		i := slices.IndexFunc(plan.Classes, func(c *resourceapi.DeviceClass) bool { return resourceOf(c) == resource })
		assert.Equal(t, old.Spec.Config, plan.Classes[i].Spec.Config)
		next := planned(t, Input{Configs: map[string]string{"a": text}, Classes: stored(plan)})
		assert.Equal(t, profileNames(t, plan), profileNames(t, next))
	}
	plan := planned(t, Input{Configs: map[string]string{"a": "version: v1"}, Classes: []resourceapi.DeviceClass{old}})
	assert.Equal(t, []string{wholeGPU}, resources(plan))
	assert.Empty(t, profileNames(t, plan))
}

// An unmanaged class of that name is kept, and the resource name gets another class. It is a problem only if it selects other devices.
func TestNewPlan_UnmanagedProfileClass_NotChanged(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	name, selector := ProfileClass(driver, "1g.10gb")
	wrapped := "device.driver == \"gpu.prism.dev\" &&\n  device.attributes[\"gpu.prism.dev\"].type == \"mig\"\n  && device.attributes[\"gpu.prism.dev\"].profile == \"1g.10gb\""
	for expression, problem := range map[string]bool{selector: false, wrapped: false, "true": true} {
		plan := planned(t, Input{Configs: map[string]string{"a": nodeHeader}, Classes: []resourceapi.DeviceClass{unmanagedClass(name, "", expression)}, Profiles: []string{"1g.10gb"}})
		assert.Empty(t, profileNames(t, plan))
		assert.Equal(t, []string{wholeGPU, resource}, resources(plan))
		assert.Equal(t, className(resource, driver), plan.Classes[1].Name)
		if !problem {
			assert.Empty(t, plan.Problems)
			continue
		}
		require.Len(t, plan.Problems, 1)
		assert.Equal(t, ReasonDeviceClassNameTaken, plan.Problems[0].Reason)
		assert.Equal(t, "DeviceClass mig-1g-10gb.gpu.prism.dev is not managed by the controller: requests with it get the devices that it selects, not "+
			"MIG devices of profile 1g.10gb; delete it, and the controller creates its own", plan.Problems[0].Note)
	}
}
