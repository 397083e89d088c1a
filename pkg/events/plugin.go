package events

func ofPlugin() []Event {
	return append([]Event{
		{
			AllocationConflict, true, node, "A device plugin or NVIDIA's DRA driver allocates the GPUs of the node too; new claims get none of them.",
			"Remove it from the node, or keep Prism off the node with the chart value kubeletPlugin.affinity.",
		},
		{AllocationConflictResolved, false, node, "Nothing else allocates the GPUs any more.", ""},
		{CDIAvailable, false, node, "A container has started with the devices of its claim since the container runtime was started.", ""},
		{
			CDIUnavailable, true, node, "The container runtime does not apply the CDI specs of claims: containers start without their GPUs, or do not start.",
			"Turn CDI on in the runtime's configuration, or have it read the directory cdiRoot, as the Event says, and restart the runtime.",
		},
		{
			CheckpointCorrupted, true, node, "The record of a claim could not be read and was set aside; other claims are not affected.",
			"Delete the pod of the claim, so that it is prepared again; check the filesystem of the kubelet's directory.",
		},
		{ClusterFeaturesChanged, false, node, "GPUs are advertised otherwise, because the API server stores other fields or counts as another version.", ""},
		{
			DeviceNodesMissing, true, node, "Device nodes are missing: of a GPU, which gets no new claims until they are there, or those that a flag of the node's " +
				"configuration adds to containers.",
			"Make them with nvidia-modprobe, or load the kernel module that the Event names, or turn the flag off.",
		},
		{DeviceNodesRestored, false, node, "The device nodes of a GPU are there again, and it gets new claims.", ""},
		{DriverNameChanged, false, node, "Claims of an earlier driver name of the release are still prepared on the node, or none is any more.", ""},
		{
			GPULayoutChangePending, true, node, "A GPU waits for more than 10 minutes for devices to be released before its new layout is advertised.",
			"Delete the pods that use the named devices, or wait.",
		},
		{GPUUnhealthy, true, node, "A GPU does not respond and is not advertised.", "Reset the GPU or drain the node."},
		{GarbageCollected, false, node, "Records, CDI specs or hardware effects that no claim owns were removed.", ""},
		{
			GarbageCollectionFailed, true, node, "What no claim owns could not be found or removed; it is retried.",
			"Act on the cause in the text if it stays.",
		},
		{
			ProfileIncomplete, true, "ResourceClaim",
			"The pods of a profiled claim have ended, and not every process was recorded, or a report is lost; the text has the claim's last conditions.",
			"Act on the cause in the text, which docs/profiling.md lists by its reason, and run the pod again.",
		},
	}, configuration()...)
}

// configuration are the Events about what the GPUs of a node are advertised as.
func configuration() []Event {
	return append([]Event{
		{
			LayoutStateUnreadable, true, node, "The file that keeps the advertised layout over restarts cannot be read; free GPUs may change their layout at once.",
			"Check the filesystem of the plugin's directory.",
		},
		{
			MIGModeMismatch, true, node, "A GPU advertises no device: its MIG mode does not allow its configuration and changes only with a reset.",
			"Drain the node and set the MIG mode as the Event says.",
		},
	}, append(ofMPS(), drivers()...)...)
}

// ofMPS are the Events about MPS shares.
func ofMPS() []Event {
	return []Event{
		{MPSAvailable, false, node, "The MPS service of the node answers again, or can start control daemons again.", ""},
		{
			MPSClientsLeft, true, node,
			"The last MPS share of a GPU is released, and processes are still connected to its control daemon; new claims do not get the GPU.",
			"Find out why the processes with the named pids have not exited on the node.",
		},
		{
			MPSDaemonFailed, true, node, "A GPU with MPS shares cannot be used now: its control daemon, compute mode or limits could not be restored.",
			"Act on the cause in the text; it is retried.",
		},
		{
			MPSDaemonRestarted, true, node, "The MPS control daemon of a GPU exited and was started again; processes that used the GPU have lost it.",
			"Restart the containers that use the GPU, if they do not exit by themselves; the log of the MPS service has the daemon's.",
		},
		{
			MPSLimitsChanged, true, node, "A process has changed limits of an MPS control daemon; they were restored.",
			"Find the process: clients that have connected meanwhile keep the limits that they had then.",
		},
		{
			MPSServerRestarted, true, node, "The MPS server of a GPU exited and was started again by its control daemon; processes that used the GPU have lost it.",
			"Restart the containers that use the GPU, if they do not exit by themselves; the log of the MPS service has the server's.",
		},
		{
			MPSSingleUser, true, node, "The driver has no MPS server for all users: clients of another user ID wait until those connected have exited.",
			"Use one user ID in all containers that share the GPU, or install a later driver.",
		},
		{
			MPSStateUnreadable, true, node, "The records of claims, or the saved compute modes, cannot be read: no MPS control daemon is checked meanwhile.",
			"Act on the cause in the text, which is an error of the plugin's directory; it is read again every 10 s.",
		},
		{
			MPSUnavailable, true, node, "The MPS service of the node does not answer, or can start no control daemon; no new claim gets an MPS share there.",
			"Set the chart value mps.enabled to true, check the pod of the MPS service on the node, or act on the cause in the text.",
		},
	}
}

// drivers are the Events about the driver and the node's configuration.
func drivers() []Event {
	return append([]Event{
		{NVIDIADriverAvailable, false, node, "The NVIDIA driver responds again.", ""},
		{NVIDIADriverUnavailable, true, node, "The NVIDIA driver does not respond; no GPU is advertised.", "Install or load the NVIDIA driver."},
		{NodeConfigAccepted, false, node, "The node's configuration is valid again; GPUs change to it as they become free.", ""},
		{
			NodeConfigInvalid, true, node, "The node's configuration, or a part of it, is invalid or does not fit the GPUs; the last valid one stays.",
			"Correct what the Event names.",
		},
		{
			NodeConfigUnavailable, true, node, "The node's configuration could not be read several times; the last one stays.",
			"Check that the ConfigMap or file exists and that the API server responds.",
		},
		{
			NodeConfigUnmatched, false, node, "The node's configuration names GPUs or MIG profiles that the node lacks, as one for many nodes may; " +
				"all else is applied. `select.mustMatch` makes it a problem, or turns the Event off.", "",
		},
	}, cluster()...)
}

// cluster are the Events about what the API server and the scheduler support.
func cluster() []Event {
	return []Event{
		{
			PartitionableDevicesDisabled, true, node, "The API server does not store shared counters, so each GPU is advertised in one mode.",
			"Turn on the feature gate DRAPartitionableDevices (on by default from Kubernetes 1.36).",
		},
		{
			PartitionableDevicesUnknown, true, node, "Whether the API server stores shared counters could not be found out; no change is published meanwhile.",
			"Check that the API server responds and that the plugin may create ResourceSlices.",
		},
		{
			ResourceSliceFieldsDropped, true, node, "The API server stored a ResourceSlice without some of its fields.",
			"Turn on the feature gates that the Event names.",
		},
		{RestartRequired, true, node, "A changed setting is in force only after a restart of the plugin.", "Delete the plugin's pod on the node."},
		{
			SharedCountersUnsupported, true, node,
			"The scheduler does not count shares of a device together with other devices of the GPU, so each GPU with shares is advertised in one mode.",
			"Upgrade to Kubernetes 1.36.2 or later, or configure one mode for such GPUs.",
		},
		{
			StateDirectoryChanged, true, node, "The state directory that the chart named before has reports of profiles or installed profilers, which are not used.",
			"Set stateDir to it again to keep the reports, or delete what the Event names when no profiled pod of before the change runs.",
		},
		{
			TimeSliceIntervalNotSet, true, node, "The time-slice interval of a GPU is not the configured one.",
			"Act on the cause in the text: nvidia-smi must be on the node, and the GPU must support intervals.",
		},
	}
}
