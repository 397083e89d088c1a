package classes

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
	// annotationUses holds, as JSON, the uses of the resource name by entry of the ConfigMap.
	annotationUses = "prism.dev/uses"
)

// labels are the labels of objects that the controller of a driver manages.
func labels(driver string) map[string]string {
	return map[string]string{labelManagedBy: managedBy, labelDriver: driver}
}

// owned reports whether the controller of that driver manages an object.
func owned(object metav1.Object, driver string) bool {
	for key, value := range labels(driver) {
		if object.GetLabels()[key] != value {
			return false
		}
	}
	return true
}

// className is the name of the DeviceClass of an extended resource: gpu-2gb.nvidia.com.<driver>, or a hash if that is not a valid name.
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

// newUnnamedClass returns a DeviceClass without an extended resource name.
func newUnnamedClass(driver, name, selector string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(driver), Annotations: map[string]string{}},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}},
		},
	}
}

// newClass returns a DeviceClass with an extended resource name; byKey are the uses of the name by entry of the ConfigMap.
func newClass(driver, name, resource, selector string, byKey names) (*resourceapi.DeviceClass, error) {
	annotation, err := json.Marshal(byKey)
	if err != nil {
		return nil, fmt.Errorf("encoding the uses of %s: %w", resource, err)
	}
	class := newUnnamedClass(driver, name, selector)
	class.Annotations[annotationUses] = string(annotation)
	class.Spec.ExtendedResourceName = &resource
	return class, nil
}

// configOf is the configuration of the DeviceClass that currently uses a resource name, possibly under another driver name. A new
// DeviceClass of that name gets it; in an existing one, users own the configuration.
func (p *planner) configOf(resource string) []resourceapi.DeviceClassConfiguration {
	for i := range p.Classes {
		if class := &p.Classes[i]; resourceOf(class) == resource && p.ours(class) {
			return p.renamed(class)
		}
	}
	return nil
}

// nameDropped reports whether the API server has dropped the extended resource name of a DeviceClass. The class of a MIG profile may not
// have been written with one yet.
func nameDropped(current, desired *resourceapi.DeviceClass) bool {
	if current == nil || resourceOf(current) != "" || resourceOf(desired) == "" {
		return false
	}
	_, written := current.Annotations[annotationUses]
	return written || originOf(current) == nil
}

// recordedUses are the uses by an entry of the ConfigMap at the last write of the DeviceClass; nil if they cannot be read.
func recordedUses(class *resourceapi.DeviceClass, key string) []use {
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

// hasOnlySelector reports whether this selector is the only one of a DeviceClass.
func hasOnlySelector(class *resourceapi.DeviceClass, selector string) bool {
	return len(class.Spec.Selectors) == 1 && class.Spec.Selectors[0].CEL != nil &&
		strings.Join(strings.Fields(class.Spec.Selectors[0].CEL.Expression), " ") == selector
}
