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

// All lists every Event in the order of the reasons.
func All() []Event {
	return append(ofPlugin(), ofController()...)
}

func ofController() []Event {
	return []Event{
		{
			DeviceClassNameTaken, true, configMap + ", " + deviceClass, "A DeviceClass that the controller would create already exists, and the controller does not own it.",
			"Delete or rename that DeviceClass, or choose another resource name.",
		},
		{
			DevicePluginCapacity, true, configMap + ", " + node, "A device plugin advertises nvidia.com/gpu on some nodes, so Prism's whole GPUs do not get that name.",
			"Remove the device plugin, or set the chart value for the resource name to Never.",
		},
		{DriverNameChanged, false, deviceClass, "The DeviceClass replaced the deleted one of an earlier driver name of the release.", ""},
		{
			ExtendedResourcesOverlap, true, configMap, "Two extended resource names request the same devices.",
			"Give the GPUs of the entries different names.",
		},
		{
			ExtendedResourcesUnsupported, true, configMap + ", " + deviceClass, "The API server does not store extended resource names of DeviceClasses.",
			"Turn on the feature gate DRAExtendedResource, or request devices by ResourceClaims.",
		},
		{
			NodeConfigInvalid, true, configMap, "An entry of the ConfigMap is invalid; the DeviceClasses of its last valid content stay.",
			"Correct the entry that the Event names.",
		},
		{
			ReportsLeft, true, lease, "A node that stores reports did not respond while a namespace was deleted; the deletion does not wait for it.",
			"If the plugin runs on the node again, it removes the reports. Otherwise delete the directory profiles on the node.",
		},
		{
			TooManyMIGProfiles, true, configMap, "Nodes publish more MIG profiles than all GPU models together have; the rest get no DeviceClass.",
			"Find the ResourceSlices with unknown profiles and the component that writes them.",
		},
	}
}
