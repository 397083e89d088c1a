package main

// draValue is a value of the chart of NVIDIA's DRA driver, with all values below it.
type draValue struct {
	name string
	// same: this chart uses the same name for the same meaning, except for the differences in here.
	same bool
	here string
}

// draValues are all values of the chart of NVIDIA's DRA driver, of the versions 25 and 0 (deployments/helm/*/values.yaml of
// NVIDIA/k8s-dra-driver-gpu).
var draValues = []draValue{
	{"nvidiaDriverRoot", true, "the same; detected by default"},
	{"nvidiaCDIHookPath, nvidiaCtkPath", false, "`nvidiaCDIHook`"},
	{"altProcDevices", false, "none: device numbers are read from the host"},
	{"maskNvidiaDriverParams", false, "none: the NVIDIA driver's parameters are not mounted"},
	{"nameOverride, fullnameOverride", true, "the same"},
	{"namespaceOverride", false, "none: `helm --namespace`"},
	{"selectorLabelsOverride", false, "none: further labels by `kubeletPlugin.podLabels`, `controller.podLabels`"},
	{"gpuResourcesEnabledOverride", false, "none: the driver advertises GPUs; Prism withholds its GPUs on a node where another driver advertises them too"},
	{"consumableShares", false, "modes `timeslice` or `mps` of a node configuration, `config.map`: shares are devices with a capacity"},
	{"allowDefaultNamespace", false, "none: every namespace is allowed that admits privileged pods"},
	{"resourceApiVersion", false, "none: always `resource.k8s.io/v1`"},
	{"imagePullSecrets, image.repository, image.tag, image.pullPolicy", true, "the same, with other defaults; and `image.digest`"},
	{"serviceAccount.create, serviceAccount.name, serviceAccount.annotations", true, "the same"},
	{"resources.gpus.enabled", false, "none: keep the plugin off nodes with `kubeletPlugin.nodeSelector` or `kubeletPlugin.affinity`"},
	{"resources.computeDomains", false, "none: NVIDIA's driver allocates ComputeDomains and IMEX channels; it can run beside Prism with `resources.gpus.enabled=false`"},
	{"featureGates", false, "none: DynamicMIG is mode `mig`, TimeSlicingSettings and MPSSupport are modes and strategies, DeviceMetadata is `deviceMetadata`, health is " +
		"always checked; PassthroughSupport is not supported"},
	{"logVerbosity", true, "the same; default 2 or less, and other levels"},
	{"webhook.enabled", false, "`controller.admission.enabled`"},
	{"webhook.replicas", false, "`controller.replicas`: the controller serves the webhook"},
	{"webhook.servicePort, webhook.containerPort", false, "`controller.admission.port`"},
	{"webhook.failurePolicy", false, "none: a claim is also checked when it is prepared, so that a webhook that does not respond blocks no claim"},
	{"webhook.tls", false, "`controller.admission.certificate.secretName`, `controller.admission.certificate.caBundle`; cert-manager by `controller.admission.annotations`; otherwise the chart creates it"},
	{"webhook.priorityClassName, webhook.podAnnotations, webhook.nodeSelector, webhook.tolerations, webhook.affinity", false,
		"`controller.priorityClassName`, `controller.podAnnotations`, `controller.nodeSelector`, `controller.tolerations`, `controller.affinity`"},
	{"webhook.strategy, webhook.podSecurityContext, webhook.serviceAccount, webhook.containers.webhook", false, "`controller.resources`; none for the others"},
	{"controller.replicas", true, "the same; applies to controller and webhook"},
	{"controller.leaderElection", false, "none: replicas always elect a leader"},
	{"controller.metrics", false, "`metrics.service.create`, `metrics.podMonitor.create`"},
	{"controller.priorityClassName, controller.podAnnotations, controller.nodeSelector, controller.tolerations, controller.affinity", true, "the same"},
	{"controller.podSecurityContext", false, "none"},
	{"controller.containers.computeDomain", false, "`controller.resources`"},
	{"controller.networkPolicy.enabled", false, "`controller.networkPolicy.create`"},
	{"kubeletPlugin.metrics", false, "`metrics.service.create`, `metrics.podMonitor.create`; GPUs: `exporter.enabled`"},
	{"kubeletPlugin.priorityClassName, kubeletPlugin.updateStrategy, kubeletPlugin.podAnnotations", true, "the same"},
	{"kubeletPlugin.nodeSelector, kubeletPlugin.tolerations, kubeletPlugin.affinity", true, "the same; on a node without an NVIDIA GPU the plugin is idle"},
	{"kubeletPlugin.podSecurityContext", false, "`kubeletPlugin.securityContext` of the container"},
	{"kubeletPlugin.kubeletRegistrarDirectoryPath, kubeletPlugin.kubeletPluginsDirectoryPath", false, "`kubeletRoot`, which contains both"},
	{"kubeletPlugin.containers.init", false, "none: there is no init container; an Event `NVIDIADriverUnavailable` names the missing part"},
	{"kubeletPlugin.containers.gpus.env", false, "`kubeletPlugin.extraEnv`"},
	{"kubeletPlugin.containers.gpus.resources, kubeletPlugin.containers.gpus.securityContext", false, "`kubeletPlugin.resources`, `kubeletPlugin.securityContext`"},
	{"kubeletPlugin.containers.gpus.healthcheckPort", false, "none: the probes use no port of the host"},
	{"kubeletPlugin.containers.computeDomains", false, "none, like resources.computeDomains"},
	{"kubeletPlugin.networkPolicy.enabled", false, "`kubeletPlugin.networkPolicy.create`"},
}

// draSection is for readers who know NVIDIA's DRA driver.
func draSection(out *text) {
	out.heading("From NVIDIA's DRA driver")
	out.para("Every value of the chart of NVIDIA's DRA driver. The schema of the chart refuses unknown values. Manifests of that driver run " +
		"unchanged under its name: [other-drivers.md](../other-drivers.md#replacing-nvidias-dra-driver).")
	t := table{head: []string{"value", "same name", "here"}}
	for _, v := range draValues {
		same := "no"
		if v.same {
			same = "yes"
		}
		t.row(codes(splitList(v.name)), same, v.here)
	}
	out.table(t)
}
