package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// profileNames are the names of the planned classes of MIG profiles, each with its resource name.
func profileNames(t *testing.T, plan *Plan) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, class := range plan.Classes {
		if o := originOf(class); o != nil {
			name, selector := ProfileClass(driver, o.Profile)
			require.Equal(t, name, class.Name)
			require.True(t, selectsAs(class, selector), class.Name)
			found[name] = resourceOf(class)
		}
	}
	return found
}

func TestProfileClass_NameAndSelector(t *testing.T) {
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

// TestProfileClass_NamesDiffer: of profiles whose names differ in nothing but what a class name cannot have, also such that no GPU has.
func TestProfileClass_NamesDiffer(t *testing.T) {
	profiles := map[string]string{}
	suffixes := []string{"", "+me", "-me", ".me", "+no.me", "+no", "-no", "-no.me", "+me.all", "+me+all", "+me-all", "-me.all", "-me-all", "-me+all", "-no-me", "+gfx", "+ME"}
	for _, base := range []string{"1g.10gb", "11g.0gb", "1g-10gb", "1g.10gb+averylongsuffixthatmakesaverylongname"} {
		for _, suffix := range suffixes {
			name, _ := ProfileClass(driver, base+suffix)
			assert.Empty(t, validation.IsDNS1123Subdomain(name))
			assert.Empty(t, profiles[name], "%s is the class of %s too", name, base+suffix)
			profiles[name] = base + suffix
		}
	}
	assert.Len(t, profiles, 4*len(suffixes))
}

// TestPlan_ProfileClasses: of the profiles that entries name and nodes publish, whatever the strategy. A class has the resource name of the
// profile's MIG devices where the name requests all of them.
func TestPlan_ProfileClasses(t *testing.T) {
	const small, medium, small2, resource = "mig-1g-10gb." + driver, "mig-2g-20gb." + driver, "mig-1g-10gb-me." + driver, "nvidia.com/mig-"
	slicesShared := "version: v1\nflags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}"
	for name, test := range map[string]struct {
		config   string
		profiles []string
		want     map[string]string
		classes  int
	}{
		"none":             {nodeHeader, nil, map[string]string{}, 1},
		"named":            {nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [2g.20gb, 1g.10gb+me]}}]", nil, map[string]string{medium: resource + "2g.20gb", small2: resource + "1g.10gb.me"}, 3},
		"strategy none":    {nodeHeader + "flags: {migStrategy: none}\ngpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]", []string{"1g.10gb"}, map[string]string{medium: "", small: ""}, 3},
		"strategy single":  {nodeHeader + "flags: {migStrategy: single}\ngpus: [{modes: [mig], mig: {profiles: [2g.20gb]}}]", nil, map[string]string{medium: ""}, 2},
		"published":        {"version: v1", []string{"1g.10gb"}, map[string]string{small: ""}, 2},
		"both, mixed":      {nodeHeader + "gpus: [{modes: [mig], mig: {profiles: [1g.10gb]}}]", []string{"1g.10gb"}, map[string]string{small: resource + "1g.10gb"}, 2},
		"shared":           {nodeHeader + "gpus: [{mig: {replicas: {1g.10gb: 2}}}]", nil, map[string]string{small: resource + "1g.10gb"}, 2},
		"shared, all":      {nodeHeader + "gpus: [{mig: {replicas: {'*': 2}}}]", nil, map[string]string{}, 1},
		"kept apart":       {slicesShared, nil, map[string]string{small: ""}, 3},
		"kept apart, used": {slicesShared, []string{"1g.10gb", "2g.20gb"}, map[string]string{small: "", medium: resource + "2g.20gb"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planned(t, Input{Configs: map[string]string{"a": test.config}, Profiles: test.profiles})
			assert.Equal(t, test.want, profileNames(t, plan))
			assert.Len(t, plan.Classes, test.classes)
			assert.Empty(t, plan.Problems)
			bare := func(c *resourceapi.DeviceClass) bool { return resourceOf(c) == "" }
			if i := slices.IndexFunc(plan.Classes, bare); i >= 0 {
				assert.False(t, slices.ContainsFunc(plan.Classes[i:], func(c *resourceapi.DeviceClass) bool { return !bare(c) }), "resource names come first")
			}
		})
	}
}

// TestPlan_ProfileClass_Stays: a class that was published stays for ever, one that was only named as long as an entry names it, or cannot
// be read and named it.
func TestPlan_ProfileClass_Stays(t *testing.T) {
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
		assert.Equal(t, want, profileNames(t, third), "any process knows it: %s", text)
	}
	other := planned(t, Input{Configs: map[string]string{"a": "version: v1", "b": "version: v7"}, Classes: stored(first)})
	assert.Equal(t, map[string]string{small: ""}, profileNames(t, other), "another entry that cannot be read never named it")
	unpublished := slices.DeleteFunc(stored(first), func(c resourceapi.DeviceClass) bool { return c.Name == small })
	again := planned(t, Input{Configs: map[string]string{"a": named}, Classes: unpublished})
	assert.Equal(t, map[string]string{medium: ""}, profileNames(t, again), "one that was deleted, and that no node publishes, stays away")
}

// TestPlan_PublishedProfiles_Bounded: a node that publishes any number of profiles fills no cluster with classes, and takes none from others.
func TestPlan_PublishedProfiles_Bounded(t *testing.T) {
	first := planned(t, Input{Profiles: []string{"7g.80gb"}})
	many := []string{"7g.80gb", "8g.90gb"}
	for i := range 2 * maxPublished {
		many = append(many, fmt.Sprintf("1g.%dgb", 1000+i))
	}
	slices.Sort(many)
	second := planned(t, Input{Configs: map[string]string{"a": "version: v1"}, Profiles: many, Classes: stored(first)})
	assert.Len(t, profileNames(t, second), maxPublished)
	assert.Contains(t, profileNames(t, second), "mig-7g-80gb."+driver, "what has a class keeps it")
	assert.Less(t, len(second.Classes), 2*maxPublished, "with resource names")
	require.Len(t, second.Problems, 1)
	assert.Equal(t, Problem{ReasonTooManyMIGProfiles, fmt.Sprintf("nodes publish MIG devices of %d profiles more than the %d that get a DeviceClass, such as "+
		"%q: see which node has ResourceSlices of driver %s with such devices", maxPublished+2, maxPublished, "1g.1063gb", driver)}, second.Problems[0])
	third := planned(t, Input{Profiles: many, Classes: stored(second)})
	assert.Equal(t, profileNames(t, second), profileNames(t, third))
}

// TestPlan_ProfileClass_Upgrade: the class that had the resource name before there were classes of profiles is not in the plan any more; what
// its entries wanted stays, and so does the configuration that somebody gave it.
func TestPlan_ProfileClass_Upgrade(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	old := foreign(className(resource, driver), resource, "true")
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

// TestPlan_ProfileClass_OfOthers: a class that is not the controller's keeps its name. It is a problem only where it selects other devices,
// and the resource name then has a class of its own.
func TestPlan_ProfileClass_OfOthers(t *testing.T) {
	const resource = "nvidia.com/mig-1g.10gb"
	name, selector := ProfileClass(driver, "1g.10gb")
	wrapped := "device.driver == \"gpu.prism.dev\" &&\n  device.attributes[\"gpu.prism.dev\"].type == \"mig\"\n  && device.attributes[\"gpu.prism.dev\"].profile == \"1g.10gb\""
	for expression, problem := range map[string]bool{selector: false, wrapped: false, "true": true} {
		plan := planned(t, Input{Configs: map[string]string{"a": nodeHeader}, Classes: []resourceapi.DeviceClass{foreign(name, "", expression)}, Profiles: []string{"1g.10gb"}})
		assert.Empty(t, profileNames(t, plan))
		assert.Equal(t, []string{wholeGPU, resource}, resources(plan))
		assert.Equal(t, className(resource, driver), plan.Classes[1].Name)
		if !problem {
			assert.Empty(t, plan.Problems)
			continue
		}
		require.Len(t, plan.Problems, 1)
		assert.Equal(t, ReasonDeviceClassNameTaken, plan.Problems[0].Reason)
		assert.Equal(t, "there is a DeviceClass mig-1g-10gb.gpu.prism.dev that is not the controller's: requests by this class get what it selects, not MIG "+
			"devices of profile 1g.10gb; delete it, and the controller makes its own", plan.Problems[0].Note)
	}
}
