// Package classes maintains DeviceClasses from the node configurations in one ConfigMap and from the ResourceSlices of nodes: one for
// each MIG profile, and one for each extended resource name, for pods without claims. A ValidatingAdmissionPolicy denies requests that such
// a name does not support.
//
// NewPlan is pure: it computes the desired objects and the problems from configurations and existing DeviceClasses. Its state is in
// annotations of the DeviceClasses, so that a new leader continues with it. Reconciler applies the plan.
//
// Managed objects have the controller's two labels. Other objects are never changed, and a resource name of another DeviceClass is not
// used.
package classes
