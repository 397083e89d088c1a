// Package events lists the reasons of all Events that Prism writes, with their meaning and the action of an operator. It imports nothing:
// the plugin, the controller and the reference documentation share the table.
package events

// Reasons of Events of the controller's ConfigMap, or of the DeviceClass or Node with the problem. NodeConfigInvalid is one of them, and
// the kubelet plugin also uses DriverNameChanged.
const (
	DeviceClassNameTaken         = "DeviceClassNameTaken"
	DevicePluginCapacity         = "DevicePluginCapacity"
	DriverNameChanged            = "DriverNameChanged"
	ExtendedResourcesOverlap     = "ExtendedResourcesOverlap"
	ExtendedResourcesUnsupported = "ExtendedResourcesUnsupported"
	TooManyMIGProfiles           = "TooManyMIGProfiles"
)

// ProfileIncomplete is the reason of an Event of a profiled ResourceClaim, written by the kubelet plugin when the claim is unprepared.
const ProfileIncomplete = "ProfileIncomplete"

// ReportsLeft is the reason of an Event of the Lease by which a node announces that it stores reports, written by the controller.
const ReportsLeft = "ReportsLeft"

// Actions name the operation during which an Event was written.
const (
	ActionConfigure = "Configure"
	ActionDelete    = "Delete"
	ActionDetect    = "Detect"
	ActionDiscover  = "Discover"
	ActionMaintain  = "Maintain"
	ActionPrepare   = "Prepare"
	ActionPublish   = "Publish"
	ActionReconcile = "Reconcile"
	ActionRecover   = "Recover"
)

// Event describes the Events with one reason.
type Event struct {
	Reason string
	// Warning is false for an Event of type Normal.
	Warning bool
	// About is the kind of the Event's object: Node, ConfigMap, DeviceClass, ResourceClaim or Lease.
	About string
	// Meaning says when the Event is written, Fix how an operator fixes the problem; empty if no action is needed.
	Meaning, Fix string
}

const (
	node        = "Node"
	configMap   = "ConfigMap"
	deviceClass = "DeviceClass"
	lease       = "Lease"
)

// All lists every Event.
func All() []Event { return append([]Event{}, table...) }
