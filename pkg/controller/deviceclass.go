package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "prism-controller"
	labelDriver    = "prism.dev/driver"
	// annotationUses holds, as JSON, what each entry of the ConfigMap wants of the name.
	annotationUses = "prism.dev/uses"
)

// labels mark what belongs to the controller of a driver.
func labels(driver string) map[string]string {
	return map[string]string{labelManagedBy: managedBy, labelDriver: driver}
}

// owned tells whether an object belongs to the controller of that driver.
func owned(object metav1.Object, driver string) bool {
	for key, value := range labels(driver) {
		if object.GetLabels()[key] != value {
			return false
		}
	}
	return true
}

// className is a valid name for the class of a resource, and always the same: gpu-2gb.nvidia.com.<driver>.
func className(resource, driver string) string {
	domain, name, _ := strings.Cut(resource, "/")
	class := strings.Join([]string{name, domain, driver}, ".")
	if len(validation.IsDNS1123Subdomain(class)) == 0 {
		return class
	}
	const short = 8
	sum := sha256.Sum256([]byte(resource))
	return "resource-" + hex.EncodeToString(sum[:short]) + "." + driver
}

// bareClass makes a class without a resource name.
func bareClass(driver, name, selector string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(driver), Annotations: map[string]string{}},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}},
		},
	}
}

// newClass makes the class that has a resource name; byKey are the uses of the name by entry of the ConfigMap.
func newClass(driver, name, resource, selector string, byKey names) (*resourceapi.DeviceClass, error) {
	annotation, err := json.Marshal(byKey)
	if err != nil {
		return nil, fmt.Errorf("writing down the uses of %s: %w", resource, err)
	}
	class := bareClass(driver, name, selector)
	class.Annotations[annotationUses] = string(annotation)
	class.Spec.ExtendedResourceName = &resource
	return class, nil
}

// configOf is the configuration of the class that has a resource name now: it goes with the name to a class that is created. On a class that
// exists the configuration is not the controller's.
func (p *planning) configOf(resource string) []resourceapi.DeviceClassConfiguration {
	for i := range p.Classes {
		if class := &p.Classes[i]; resourceOf(class) == resource && owned(class, p.Driver) {
			return class.Spec.Config
		}
	}
	return nil
}

// dropped tells whether the API server did not keep the resource name that a class was written with. A class of a profile may have got none yet.
func dropped(now, wanted *resourceapi.DeviceClass) bool {
	if now == nil || resourceOf(now) != "" || resourceOf(wanted) == "" {
		return false
	}
	_, written := now.Annotations[annotationUses]
	return written || originOf(now) == nil
}

// remembered reads what an entry of the ConfigMap wanted when the class was last made; nil when nothing can be told.
func remembered(class *resourceapi.DeviceClass, key string) []use {
	var byKey names
	if err := json.Unmarshal([]byte(class.Annotations[annotationUses]), &byKey); err != nil {
		return nil
	}
	return byKey[key]
}

func resourceOf(class *resourceapi.DeviceClass) string {
	if class.Spec.ExtendedResourceName == nil {
		return ""
	}
	return *class.Spec.ExtendedResourceName
}

// selectsAs tells whether a class has this selector and no other.
func selectsAs(class *resourceapi.DeviceClass, selector string) bool {
	return len(class.Spec.Selectors) == 1 && class.Spec.Selectors[0].CEL != nil &&
		strings.Join(strings.Fields(class.Spec.Selectors[0].CEL.Expression), " ") == selector
}
