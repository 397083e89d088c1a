package v1alpha1

import "testing"

func TestNodeConfig_Select_Validated(t *testing.T) {
	const (
		root = "must be empty or an absolute path without .., got "
		glob = "must be a glob of product names of 1 to 96 bytes with *, ? and [a-z], got "
		uuid = "GPU-0a1b2c3d-0000-1111-2222-0123456789ab"
	)
	testRefusals(t, nodeHeader, map[string]refusal{
		"root":              {"flags: {nvidiaDriverRoot: run/nvidia}", `flags.nvidiaDriverRoot: ` + root + `"run/nvidia"`},
		"root with dots":    {"flags: {nvidiaDriverRoot: /run/../etc}", `flags.nvidiaDriverRoot: ` + root + `"/run/../etc"`},
		"root with slashes": {"flags: {nvidiaDriverRoot: /run//nvidia/driver/}", ""},
		"host as root":      {"flags: {nvidiaDriverRoot: /}", ""},
		"found root":        {"flags: {nvidiaDriverRoot: ''}", ""},
		"two for the rest":  {"gpus: [{}, {select: {indices: [0]}}, {}]", "gpus[2]: select is required: gpus[0] already matches the remaining GPUs, because it sets no select"},
		"empty select":      {"gpus: [{select: {}}]", "gpus[0].select: must set indices, uuids or products; without select the entry matches all remaining GPUs"},
		"negative index":    {"gpus: [{select: {indices: [-1]}}]", "gpus[0].select.indices[0]: must be greater than or equal to 0, got -1"},
		"index twice":       {"gpus: [{select: {indices: [0, 0]}}]", "gpus[0].select.indices[1]: duplicate value 0"},
		"index elsewhere":   {"gpus: [{}, {select: {indices: [0]}}, {select: {indices: [1, 0]}}]", ""},
		"uuid":              {"gpus: [{select: {uuids: [GPU-1]}}]", `gpus[0].select.uuids[0]: must be a GPU UUID as nvidia-smi -L prints it (GPU-…), got "GPU-1"`},
		"uuid elsewhere":    {"gpus: [{select: {uuids: [" + uuid + "]}}, {select: {uuids: [" + uuid + "]}}]", ""},
		"product":           {"gpus: [{select: {products: ['[']}}]", `gpus[0].select.products[0]: ` + glob + `"["`},
		"no product":        {"gpus: [{select: {products: ['']}}]", `gpus[0].select.products[0]: ` + glob + `""`},
		"product again":     {"gpus: [{select: {products: [a]}}, {select: {products: [a]}}]", ""},
	})
}

func TestNodeConfig_Modes_Validated(t *testing.T) {
	testRefusals(t, nodeHeader, map[string]refusal{
		"unknown mode":        {"gpus: [{modes: [vgpu]}]", `gpus[0].modes[0]: unsupported value "vgpu"; supported values: whole, mig, mps, timeslice`},
		"mode twice":          {"gpus: [{modes: [whole, whole]}]", `gpus[0].modes[1]: duplicate value "whole"`},
		"no mode":             {"gpus: [{modes: []}]", "gpus[0].modes: must not be empty; supported values: whole, mig, mps, timeslice"},
		"settings of default": {"gpus: [{timeSlice: {replicas: 2}}]", "gpus[0].timeSlice: has no effect without mode timeslice; add it to modes or remove timeSlice"},
		"mps without mode":    {"gpus: [{modes: [whole], mps: {replicas: 2}}]", "gpus[0].mps: has no effect without mode mps; add it to modes or remove mps"},
		"mig without mode":    {"gpus: [{modes: [whole], mig: {}}]", "gpus[0].mig: has no effect without mode mig; add it to modes or remove mig"},
		"mig":                 {"gpus: [{modes: [mig]}]", ""},

		"memory":          {"gpus: [{memory: 96Gi}]", ""},
		"memory in bytes": {"gpus: [{memory: 1000M}]", "gpus[0].memory: must be a multiple of 1Mi and at least 1Mi, got 1G"},
		"no memory":       {"gpus: [{memory: 0}]", "gpus[0].memory: must be a multiple of 1Mi and at least 1Mi, got 0"},

		"time-slice alone": {"gpus: [{modes: [timeslice]}]", "gpus[0].timeSlice.replicas: required with mode timeslice: the number of claims that share the GPU, 2 or more"},
		"no replicas":      {"gpus: [{modes: [timeslice], timeSlice: {}}]", "gpus[0].timeSlice.replicas: required with mode timeslice: the number of claims that share the GPU, 2 or more"},
		"one replica":      {"gpus: [{modes: [timeslice], timeSlice: {replicas: 1}}]", ""},
		"interval":         {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, interval: 2ms}}]", `gpus[0].timeSlice.interval: unsupported value "2ms"; supported values: Default, Short, Medium, Long`},
		"share name": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: nvidia.com/gpu}}]",
			`gpus[0].timeSlice.shareName: must be 1 to 63 lower-case letters, digits and - and start and end with a letter or digit, got "nvidia.com/gpu"`},
		"share called none": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: none}}]",
			`gpus[0].timeSlice.shareName: must not be "none", the value of devices without a share name`},

		"all profiles":        {"gpus: [{modes: [mig], mig: {replicas: {1g.10gb+me.all: 2, 1g.24gb-me: 2}}}]", ""},
		"no profile":          {"gpus: [{modes: [mig], mig: {profiles: []}}]", "gpus[0].mig.profiles: must not be empty; without it all profiles of the GPU are advertised"},
		"profile":             {"gpus: [{modes: [mig], mig: {profiles: [1g]}}]", `gpus[0].mig.profiles[0]: must be a MIG profile as nvidia-smi mig -lgip prints it, for example 1g.10gb or 1g.10gb+me, got "1g"`},
		"profile twice":       {"gpus: [{modes: [mig], mig: {profiles: [1g.5gb, 1g.5gb]}}]", `gpus[0].mig.profiles[1]: duplicate value "1g.5gb"`},
		"no replica":          {"gpus: [{modes: [mig], mig: {replicas: {1g.5gb: 0}}}]", ""},
		"pre-created devices": {"gpus: [{mig: {replicas: {1g.5gb: 2}, resourceNames: {1g.5gb: nvidia.com/mig-1g.5gb.shared}}}]", ""},
		"profiles alone":      {"gpus: [{modes: [whole], mig: {profiles: [1g.5gb], replicas: {1g.5gb: 2}}}]", "gpus[0].mig: has no effect without mode mig; add it to modes or remove mig"},
		"no name":             {"gpus: [{modes: [mig], mig: {resourceNames: {1g.5gb: nvidia.com/a}}}]", "gpus[0].mig.resourceNames[1g.5gb]: has no effect without replicas[1g.5gb]; add it there or remove it here"},
		"resource": {"gpus: [{modes: [mig, timeslice], timeSlice: {replicas: 2, resourceName: gpu.shared}, mig: {replicas: {1g.5gb: 2}, resourceNames: {1g.5gb: a/}}}]",
			`gpus[0].timeSlice.resourceName: must be an extended resource <domain>/<name>, for example nvidia.com/gpu-2gb, got "gpu.shared"; ` +
				`gpus[0].mig.resourceNames[1g.5gb]: must be an extended resource <domain>/<name>, for example nvidia.com/gpu-2gb, got "a/"`},
		"resource of Kubernetes": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, resourceName: node.kubernetes.io/gpu}}]",
			`gpus[0].timeSlice.resourceName: must be an extended resource <domain>/<name>, for example nvidia.com/gpu-2gb, got "node.kubernetes.io/gpu"`},
		"another profile": {"gpus: [{modes: [mig], mig: {profiles: [1g.5gb], replicas: {2g.10gb: 2}}}]", "gpus[0].mig.replicas[2g.10gb]: must be one of profiles; add it there or remove it here"},
	})
}

func TestNodeConfig_MPS_Validated(t *testing.T) {
	mps := func(settings string) string { return "gpus: [{modes: [mps], mps: {" + settings + "}}]" }
	memory := func(bounds string) string { return mps("replicas: 2, memory: {" + bounds + "}") }
	testRefusals(t, nodeHeader, map[string]refusal{
		"mode alone":      {"gpus: [{modes: [mps]}]", "gpus[0].mps: required with mode mps: replicas, memory.default or both"},
		"no size":         {mps("memory: {min: 1Gi}"), "gpus[0].mps: replicas or memory.default is required: a share must have a size"},
		"size":            {mps("memory: {default: 1Gi}"), ""},
		"replicas":        {mps("replicas: 61"), ""},
		"part of a Mi":    {memory("default: 1G"), "gpus[0].mps.memory.default: must be a multiple of 1Mi and at least 1Mi, got 1G"},
		"min over max":    {memory("min: 2Gi, max: 1Gi"), "gpus[0].mps.memory.min: must be less than or equal to max 1Gi, got 2Gi"},
		"default over":    {memory("default: 2Gi, max: 1Gi"), "gpus[0].mps.memory.default: must be less than or equal to max 1Gi, got 2Gi"},
		"default under":   {memory("default: 1Gi, min: 2Gi"), "gpus[0].mps.memory.min: must be less than or equal to default 1Gi, got 2Gi"},
		"off step":        {memory("default: 1Gi, step: 3Mi"), "gpus[0].mps.memory.default: must be min plus a multiple of step 3Mi, got 1Gi"},
		"step from min":   {memory("min: 1Gi, default: 1027Mi, max: 1030Mi, step: 3Mi"), ""},
		"max off step":    {memory("min: 1Gi, max: 1028Mi, step: 3Mi"), "gpus[0].mps.memory.max: must be min plus a multiple of step 3Mi, got 1028Mi"},
		"threads":         {mps("replicas: 1, activeThreadPercentage: {default: 101, total: 0}"), "gpus[0].mps.activeThreadPercentage.default: must be between 0 and 100, got 101; gpus[0].mps.activeThreadPercentage.total: must be between 1 and 6000, got 0"},
		"shm":             {mps("replicas: 1, shmSize: 1"), "gpus[0].mps.shmSize: must be a multiple of 1Mi and at least 1Mi, got 1"},
		"namespace":       {mps("replicas: 1, namespaces: [A]"), `gpus[0].mps.namespaces[0]: must be 1 to 63 lower-case letters, digits and - and start and end with a letter or digit, got "A"`},
		"resource":        {mps("replicas: 1, resourceName: 'nvidia.com/gpu 2gb'"), `gpus[0].mps.resourceName: must be an extended resource <domain>/<name>, for example nvidia.com/gpu-2gb, got "nvidia.com/gpu 2gb"`},
		"namespace twice": {mps("replicas: 1, namespaces: [a, a]"), `gpus[0].mps.namespaces[1]: duplicate value "a"`},
	})
}
