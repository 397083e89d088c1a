package main

import "strings"

// Documents that the decoder refuses beyond the limits of one field. A rule of api/v1alpha1 without a document here is missing in the
// reference.
var (
	invalidGPUConfigs = []string{
		"sharing: {timeSlicing: {}, mps: {}}",
		"sharing: {strategy: MPS, timeSlicing: {}}",
		"sharing: {strategy: TimeSlicing, mps: {}}",
	}
	invalidMetricsConfigs = []string{
		"source: NVML\nsets: [Pipelines]",
		"source: GPM\ninterval: 100ms",
		"source: NVML\nfrequencyHz: 100",
		"source: NVML\nmetricSet: ga100",
		`labels: {a: ""}`,
	}
	invalidProfilerConfigs = []string{
		"start: NVTX",
		"start: Manual\nnvtxRange: x",
		"start: Manual\ndelay: 1s",
		"start: Manual\nmaxRanges: 2",
		"mode: Launch\nstart: CUDAProfilerAPI",
		"start: Immediate\ncaptureRange: Repeat",
		"captureRange: First\nmaxRanges: 2",
		"captureRange: Repeat\nduration: 1s",
		"trace: [cuda, cuda-sw]",
		"args: [--output=x]",
		"match: {regex: '('}",
		"match: {regex: '(a)\\1'}",
		"match: {regex: '(?!a)', dialect: RE2}",
		"match: {regex: " + strings.Repeat("a", 1025) + "}",
		`match: {exclude: [""]}`,
		"output: {type: ContainerPath}",
		"output: {type: Node, path: /data}",
		"output: {path: /proc/x}",
		"output: {fileName: '{HOME}'}",
		"output: {fileName: '%{A-B}'}",
		"output: {type: ContainerPath, path: '/a/{POD'}",
		"output: {maxBytes: 0}",
		"cpuSampling: None\nbacktrace: LBR",
		"cpuSampling: None\nsamplingFrequencyHz: 100",
	}
	invalidNodeConfigs = []string{
		"gpus: [{}, {}]",
		"gpus: [{select: {}}]",
		"gpus: [{select: {products: ['[']}}]",
		"gpus: [{timeSlice: {replicas: 2}}]",
		"gpus: [{mps: {replicas: 2}}]",
		"gpus: [{mig: {profiles: [1g.10gb]}}]",
		"gpus: [{modes: [timeslice]}]",
		"gpus: [{modes: [mps]}]",
		"gpus: [{modes: [mps], mps: {}}]",
		"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: none}}]",
		"gpus: [{modes: [mps], mps: {replicas: 2, memory: {min: 2Gi, max: 1Gi}}}]",
		"gpus: [{modes: [mps], mps: {replicas: 2, memory: {default: 3Mi, step: 2Mi}}}]",
		"gpus: [{modes: [mig], mig: {profiles: []}}]",
		"gpus: [{modes: [mig], mig: {profiles: [1g.10gb], replicas: {2g.20gb: 2}}}]",
		"gpus: [{mig: {replicas: {1g.10gb: 2}, resourceNames: {2g.20gb: nvidia.com/a}}}]",
	}
)
