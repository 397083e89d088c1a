// Package v1alpha1 contains the configuration of Prism: opaque device
// configuration in ResourceClaims and DeviceClasses, and the configuration
// of a node. The API group is gpu.prism.dev, regardless of the name of the
// driver.
//
// How the processes of one claim share a GPU:
//
//	apiVersion: gpu.prism.dev/v1alpha1
//	kind: GPUConfig
//	sharing:
//	  strategy: MPS
//	  mps:
//	    activeThreadPercentage: 50
//	    memoryLimit: 8Gi
//
// Which processes are profiled, and where reports are stored:
//
//	apiVersion: gpu.prism.dev/v1alpha1
//	kind: ProfilerConfig
//	match:
//	  regex: ^(?!.*torchrun).*python.*train\.py
//	start: Manual
//	trace: [cuda, nvtx, osrt]
//	output:
//	  fileName: "{POD}_{PROCESS_NAME}_{UID}"
//	  retention: 24h
//
// Which metrics are sampled for the GPUs of the claim:
//
//	apiVersion: gpu.prism.dev/v1alpha1
//	kind: GPUMetricsConfig
//	source: GPM
//	sets: [Basic, Pipelines]
//	interval: 1s
//	labels: {team: vision}
//
// How the GPUs of a node are advertised (not in claims: a ConfigMap):
//
//	apiVersion: gpu.prism.dev/v1alpha1
//	kind: NodeConfig
//	gpus:
//	- select: {products: ["NVIDIA H100*"]}
//	  modes: [whole, mps]
//	  mps: {shareName: gpu-2gb, replicas: 4, memory: {default: 2Gi}}
//	- modes: [whole]
//
// An unset field is different from a zero one, because options are merged
// field by field before defaults fill the unset ones:
//
//	Decode each → Merge in order → Default → Validate
//
// Decode refuses a configuration that is invalid by itself. The second Validate
// checks the merged options, in which every field with a default is set.
package v1alpha1
