package classes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/events"
)

// formerDriver returns the name of the driver for which the controller of this release created an object before the driver name of the
// release changed; empty for another object. The release is identified by its ClusterRole, which owns the objects of its controller:
// another release uses another ClusterRole, and its objects stay.
func (r *Reconciler) formerDriver(object metav1.Object) string {
	driver := object.GetLabels()[labelDriver]
	if driver == r.DriverName || !owned(object, driver) || len(r.owner) == 0 {
		return ""
	}
	if !slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == r.owner[0].UID }) {
		return ""
	}
	return driver
}

// formerClasses are the names of the DeviceClasses of earlier driver names, with these driver names.
func (r *Reconciler) formerClasses(classes []resourceapi.DeviceClass) map[string]string {
	former := map[string]string{}
	for i := range classes {
		if driver := r.formerDriver(&classes[i]); driver != "" {
			former[classes[i].Name] = driver
		}
	}
	return former
}

// mine reports whether the controller of this release manages an object, possibly under an earlier driver name.
func (r *Reconciler) mine(object metav1.Object) bool {
	return owned(object, r.DriverName) || r.formerDriver(object) != ""
}

// ours is mine for DeviceClasses.
func (p *planner) ours(class *resourceapi.DeviceClass) bool {
	return owned(class, p.Driver) || p.Former[class.Name] != ""
}

// renamed is the configuration of a DeviceClass for the current driver name.
func (p *planner) renamed(class *resourceapi.DeviceClass) []resourceapi.DeviceClassConfiguration {
	former := p.Former[class.Name]
	config := class.DeepCopy().Spec.Config
	for i := range config {
		if opaque := config[i].Opaque; opaque != nil && former != "" && opaque.Driver == former {
			opaque.Driver = p.Driver
		}
	}
	return config
}

// removeFormer deletes a DeviceClass of an earlier driver name, and records an Event on the DeviceClass that replaces it.
func (r *Reconciler) removeFormer(ctx context.Context, class *resourceapi.DeviceClass, plan *Plan) error {
	if err := r.remove(ctx, class); err != nil {
		return err
	}
	former := class.Labels[labelDriver]
	name := strings.TrimSuffix(class.Name, former) + r.DriverName
	for _, successor := range plan.Classes {
		if successor.Name == name {
			r.Events.Eventf(classReference(name, successor.UID), nil, corev1.EventTypeNormal, events.DriverNameChanged, events.ActionReconcile, "%s",
				shorten(fmt.Sprintf("Replaced DeviceClass %s: the name of the driver is %s instead of %s", class.Name, r.DriverName, former)))
		}
	}
	return nil
}

// classReference refers to a DeviceClass. Its Events are in the namespace default.
func classReference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "DeviceClass", Name: name, UID: uid}
}
