package classes

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// profilesIn lists the profiles of the MIG devices in a ResourceSlice, sorted.
func profilesIn(slice *resourceapi.ResourceSlice, driver string) []string {
	if slice.Spec.Driver != driver {
		return nil
	}
	var profiles []string
	text := func(device *resourceapi.Device, name string) string {
		for _, key := range []resourceapi.QualifiedName{resourceapi.QualifiedName(name), resourceapi.QualifiedName(driver + "/" + name)} {
			if value := device.Attributes[key].StringValue; value != nil {
				return *value
			}
		}
		return ""
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		if profile := text(device, gpu.AttributeProfile); text(device, gpu.AttributeType) == string(gpu.TypeMIG) && profile != "" {
			profiles = append(profiles, profile)
		}
	}
	slices.Sort(profiles)
	return slices.Compact(profiles)
}

// shrink reduces a cached ResourceSlice to the fields that profilesIn reads: a cluster contains thousands of them, with dozens of devices
// each.
func shrink(driver string) func(any) (any, error) {
	return func(object any) (any, error) {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			return object, nil
		}
		small := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: slice.Name, UID: slice.UID, ResourceVersion: slice.ResourceVersion},
			Spec:       resourceapi.ResourceSliceSpec{Driver: slice.Spec.Driver},
		}
		of := string(gpu.TypeMIG)
		for _, profile := range profilesIn(slice, driver) {
			small.Spec.Devices = append(small.Spec.Devices, resourceapi.Device{Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				gpu.AttributeType: {StringValue: &of}, gpu.AttributeProfile: {StringValue: &profile},
			}})
		}
		return small, nil
	}
}
