package events

// Reasons of Events of a Node, written by the kubelet plugin.
const (
	AllocationConflict           = "AllocationConflict"
	AllocationConflictResolved   = "AllocationConflictResolved"
	CDIAvailable                 = "CDIAvailable"
	CDIUnavailable               = "CDIUnavailable"
	CheckpointCorrupted          = "CheckpointCorrupted"
	ClusterFeaturesChanged       = "ClusterFeaturesChanged"
	DeviceNodesMissing           = "DeviceNodesMissing"
	DeviceNodesRestored          = "DeviceNodesRestored"
	GPUCommandInvalid            = "GPUCommandInvalid"
	GPUFlapping                  = "GPUFlapping"
	GPUHealRefused               = "GPUHealRefused"
	GPULayoutChangePending       = "GPULayoutChangePending"
	GPURecovered                 = "GPURecovered"
	GPUReleased                  = "GPUReleased"
	GPUUnhealthy                 = "GPUUnhealthy"
	GPUXIDUnknown                = "GPUXIDUnknown"
	GarbageCollected             = "GarbageCollected"
	GarbageCollectionFailed      = "GarbageCollectionFailed"
	HealthStateUnreadable        = "HealthStateUnreadable"
	LayoutStateUnreadable        = "LayoutStateUnreadable"
	MIGModeMismatch              = "MIGModeMismatch"
	MPSAvailable                 = "MPSAvailable"
	MPSClientsLeft               = "MPSClientsLeft"
	MPSDaemonFailed              = "MPSDaemonFailed"
	MPSDaemonRestarted           = "MPSDaemonRestarted"
	MPSLimitsChanged             = "MPSLimitsChanged"
	MPSServerRestarted           = "MPSServerRestarted"
	MPSSingleUser                = "MPSSingleUser"
	MPSStateUnreadable           = "MPSStateUnreadable"
	MPSUnavailable               = "MPSUnavailable"
	NVIDIADriverAvailable        = "NVIDIADriverAvailable"
	NVIDIADriverUnavailable      = "NVIDIADriverUnavailable"
	NodeConditionUnmatched       = "NodeConditionUnmatched"
	NodeConfigAccepted           = "NodeConfigAccepted"
	NodeConfigInvalid            = "NodeConfigInvalid"
	NodeConfigUnavailable        = "NodeConfigUnavailable"
	NodeConfigUnmatched          = "NodeConfigUnmatched"
	PartitionableDevicesDisabled = "PartitionableDevicesDisabled"
	PartitionableDevicesUnknown  = "PartitionableDevicesUnknown"
	ResourceSliceFieldsDropped   = "ResourceSliceFieldsDropped"
	RestartRequired              = "RestartRequired"
	SharedCountersUnsupported    = "SharedCountersUnsupported"
	StateDirectoryChanged        = "StateDirectoryChanged"
	TimeSliceIntervalNotSet      = "TimeSliceIntervalNotSet"
)

// table describes the Events of the kubelet plugin, then the Events of the controller.
var table = []Event{
	{
		AllocationConflict, true, node, "A device plugin or NVIDIA's DRA driver also allocates the GPUs of the node, so new claims do not get them.",
		"Remove it from the node, or exclude the node from Prism with the chart value kubeletPlugin.affinity.",
	},
	{AllocationConflictResolved, false, node, "No other component allocates the GPUs any more.", ""},
	{CDIAvailable, false, node, "A container with the devices of its claim has started since the last start of the container runtime.", ""},
	{
		CDIUnavailable, true, node, "The container runtime does not apply the CDI specs of claims: containers start without their GPUs, or do not start.",
		"As the Event says, turn CDI on in the runtime's configuration, or add the directory cdiRoot to it. Then restart the runtime.",
	},
	{
		CheckpointCorrupted, true, node, "The record of a claim could not be read and was set aside; other claims are not affected.",
		"Delete the pod of the claim, so that it is prepared again; check the filesystem of the kubelet's directory.",
	},
	{ClusterFeaturesChanged, false, node, "Prism advertises GPUs in another way, because features of the API server or the cluster's version have changed.", ""},
	{
		DeviceNodesMissing, true, node, "Device nodes are missing: of a GPU, which gets no new claims until they exist, or of a flag of the node's " +
			"configuration that adds them to containers.",
		"Create them with nvidia-modprobe, load the kernel module that the Event names, or turn the flag off.",
	},
	{DeviceNodesRestored, false, node, "The device nodes of a GPU exist again. If the GPU has no other problem, it gets new claims.", ""},
	{DriverNameChanged, false, node, "The node still has prepared claims of an earlier driver name of the release, or has none any more.", ""},
	{
		GPUCommandInvalid, true, node, "An annotation of the node for the maintenance of a GPU is not followed, for the reason in the text.",
		"Correct or remove the annotation; docs/maintenance.md describes all of them.",
	},
	{
		GPUHealRefused, true, node, "A GPU was declared repaired, but Prism does not end its findings, for the reason in the text.",
		"Repair the GPU as its findings say. Findings that the driver reports end by themselves.",
	},
	{
		GPULayoutChangePending, true, node, "For more than 10 minutes a GPU has waited for the release of devices before its new layout is advertised.",
		"Delete the pods that use the named devices, or wait.",
	},
	{
		GPUFlapping, true, node, "A problem of a GPU has returned for the third time within an hour, so its taint stays.",
		"Find the cause, then heal the GPU (docs/health.md) or reboot the node.",
	},
	{GPURecovered, false, node, "A problem of a GPU has ended. If the GPU has no other problem, it gets new claims again.", ""},
	{
		GPUUnhealthy, true, node, "A GPU has a problem and gets no new claims: its devices have a taint, or are not advertised if it never responded.",
		"Repair the GPU as the Event says; docs/health.md lists the taints.",
	},
	{
		GPUXIDUnknown, true, node, "The NVIDIA driver has reported an XID error with a code that Prism does not know, at most once an hour for each code.",
		"Search NVIDIA's catalogue for the code, and set it to Taint or Ignore in the chart value health.xids.",
	},
	{
		GPUReleased, false, node, "Prism has closed its sessions of the NVIDIA driver, so that a GPU in maintenance can be reset. " +
			"The text names the other processes that have it open.", "",
	},
	{GarbageCollected, false, node, "Records, CDI specs or hardware effects that no claim owns were removed.", ""},
	{
		GarbageCollectionFailed, true, node, "Records, CDI specs or hardware effects that no claim owns could not be found or removed; Prism retries.",
		"If it persists, fix the cause in the text.",
	},
	{
		HealthStateUnreadable, true, node, "The file that stores the findings of GPUs across restarts cannot be read and was set aside; polls find them again.",
		"Check GPUs with earlier XID errors, and the filesystem of the plugin's directory.",
	},
	{
		ProfileIncomplete, true, "ResourceClaim",
		"The pods of a profiled claim have ended, but a process was not recorded, or a report is lost; the text includes the claim's last conditions.",
		"Fix the cause in the text (docs/profiling.md lists causes by reason), and run the pod again.",
	},
	{
		LayoutStateUnreadable, true, node, "The file that stores the advertised layout across restarts cannot be read; free GPUs may change their layout at once.",
		"Check the filesystem of the plugin's directory.",
	},
	{
		MIGModeMismatch, true, node, "A GPU advertises no device: its configuration needs the other MIG mode, and changing the mode takes a reset.",
		"Drain the node and set the MIG mode as the Event says.",
	},
	{MPSAvailable, false, node, "The MPS service of the node answers again, or can start control daemons again.", ""},
	{
		MPSClientsLeft, true, node,
		"The last MPS share of a GPU is released, but processes are still connected to its control daemon; new claims do not get the GPU.",
		"Find out why the processes with the PIDs in the text have not exited on the node.",
	},
	{
		MPSDaemonFailed, true, node, "A GPU with MPS shares cannot be used now: its control daemon, compute mode or limits could not be restored.",
		"Fix the cause in the text; Prism retries.",
	},
	{
		MPSDaemonRestarted, true, node, "The MPS control daemon of a GPU exited and was started again; processes that used the GPU have lost it.",
		"Restart the containers that use the GPU, if they do not exit by themselves; the log of the MPS service includes the daemon's log.",
	},
	{
		MPSLimitsChanged, true, node, "A process changed limits of an MPS control daemon; they were restored.",
		"Find the process: clients that connected before the limits were restored keep the changed limits.",
	},
	{
		MPSServerRestarted, true, node, "The MPS server of a GPU exited and was started again by its control daemon; processes that used the GPU have lost it.",
		"Restart the containers that use the GPU, if they do not exit by themselves; the log of the MPS service includes the server's log.",
	},
	{
		MPSSingleUser, true, node, "The driver does not support one MPS server for all users: clients with another user ID wait until the connected ones have exited.",
		"Use one user ID in all containers that share the GPU, or install a later driver.",
	},
	{
		MPSStateUnreadable, true, node, "The records of claims or the saved compute modes cannot be read; meanwhile no MPS control daemon is checked.",
		"Fix the cause in the text, an error of the plugin's directory; Prism retries every 10 s.",
	},
	{
		MPSUnavailable, true, node, "The MPS service of the node does not answer, or cannot start control daemons; no new claim gets an MPS share on the node.",
		"Set the chart value mps.enabled to true, check the pod of the MPS service on the node, or fix the cause in the text.",
	},
	{NVIDIADriverAvailable, false, node, "The NVIDIA driver responds again.", ""},
	{NVIDIADriverUnavailable, true, node, "The NVIDIA driver does not respond; no GPU is advertised.", "Install or load the NVIDIA driver."},
	{
		NodeConditionUnmatched, true, node, "A condition of the node names only GPUs that the node does not have, so it taints none.",
		"Check the component that sets the condition: it names GPUs by UUID or PCI bus id.",
	},
	{NodeConfigAccepted, false, node, "The node's configuration is valid again; GPUs change to it as they become free.", ""},
	{
		NodeConfigInvalid, true, node, "The node's configuration, or a part of it, is invalid or does not fit the GPUs; the last valid one stays in force.",
		"Correct the settings that the Event names.",
	},
	{
		NodeConfigUnavailable, true, node, "Reading the node's configuration has failed several times; the last one stays in force.",
		"Check that the ConfigMap or file exists and that the API server responds.",
	},
	{
		NodeConfigUnmatched, false, node, "The node's configuration names GPUs or MIG profiles that the node lacks, as a configuration for many nodes may; " +
			"everything else is applied. `select.mustMatch` makes it an error, or turns the Event off.", "",
	},
	{
		PartitionableDevicesDisabled, true, node, "The API server does not store shared counters, so each GPU is advertised in one mode.",
		"Turn on the feature gate DRAPartitionableDevices (on by default from Kubernetes 1.36).",
	},
	{
		PartitionableDevicesUnknown, true, node, "Prism could not determine whether the API server stores shared counters; meanwhile it publishes no change.",
		"Check that the API server responds and that the plugin may create ResourceSlices.",
	},
	{
		ResourceSliceFieldsDropped, true, node, "The API server stored a ResourceSlice without some of its fields.",
		"Turn on the feature gates that the Event names.",
	},
	{RestartRequired, true, node, "A changed setting takes effect only after a restart of the plugin.", "Delete the plugin's pod on the node."},
	{
		SharedCountersUnsupported, true, node,
		"The scheduler does not count shares of a device together with other devices of the GPU, so each GPU with shares is advertised in one mode.",
		"Upgrade to Kubernetes 1.36.2 or later, or configure one mode for such GPUs.",
	},
	{
		StateDirectoryChanged, true, node, "The previous state directory contains reports of profiles or installed profilers, which are not used.",
		"To keep the reports, set stateDir to it again. Or delete the directories that the Event names when no pod that was profiled before the change runs.",
	},
	{
		TimeSliceIntervalNotSet, true, node, "The time-slice interval of a GPU is not the configured one.",
		"Fix the cause in the text: nvidia-smi must be on the node, and the GPU must support intervals.",
	},
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
