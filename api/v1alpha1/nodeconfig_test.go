package v1alpha1

import "testing"

func TestNodeConfigSelect(t *testing.T) {
	const (
		root = "is not allowed; allowed: an absolute path without .. or //, or empty"
		glob = "is not a glob of product names; allowed: 1 to 96 bytes with *, ? and [a-z]"
		uuid = "GPU-0a1b2c3d-0000-1111-2222-0123456789ab"
	)
	testRefusals(t, nodeHeader, map[string]refusal{
		"root":             {"flags: {nvidiaDriverRoot: run/nvidia}", `flags.nvidiaDriverRoot: "run/nvidia" ` + root},
		"root with dots":   {"flags: {nvidiaDriverRoot: /run/../etc}", `flags.nvidiaDriverRoot: "/run/../etc" ` + root},
		"host as root":     {"flags: {nvidiaDriverRoot: /}", ""},
		"found root":       {"flags: {nvidiaDriverRoot: ''}", ""},
		"two for the rest": {"gpus: [{}, {select: {indices: [0]}}, {}]", "gpus[2]: has no select, like gpus[0]; only one entry can be for the rest: give one a select"},
		"empty select":     {"gpus: [{select: {}}]", "gpus[0].select: selects nothing; name indices, uuids or products, or remove select for all GPUs that are left"},
		"negative index":   {"gpus: [{select: {indices: [-1]}}]", "gpus[0].select.indices[0]: -1 is not an index; allowed: 0 and up"},
		"index twice":      {"gpus: [{select: {indices: [0, 0]}}]", "gpus[0].select.indices[1]: 0 is given twice"},
		"index elsewhere":  {"gpus: [{}, {select: {indices: [0]}}, {select: {indices: [1, 0]}}]", ""},
		"uuid":             {"gpus: [{select: {uuids: [GPU-1]}}]", `gpus[0].select.uuids[0]: "GPU-1" is not a GPU UUID; allowed: the form that nvidia-smi -L prints, GPU-…`},
		"uuid elsewhere":   {"gpus: [{select: {uuids: [" + uuid + "]}}, {select: {uuids: [" + uuid + "]}}]", ""},
		"product":          {"gpus: [{select: {products: ['[']}}]", `gpus[0].select.products[0]: "[" ` + glob},
		"no product":       {"gpus: [{select: {products: ['']}}]", `gpus[0].select.products[0]: "" ` + glob},
		"product again":    {"gpus: [{select: {products: [a]}}, {select: {products: [a]}}]", ""},
	})
}

func TestNodeConfigModes(t *testing.T) {
	testRefusals(t, nodeHeader, map[string]refusal{
		"unknown mode":        {"gpus: [{modes: [vgpu]}]", `gpus[0].modes[0]: "vgpu" is not known; allowed: whole, mig, mps, timeslice`},
		"mode twice":          {"gpus: [{modes: [whole, whole]}]", "gpus[0].modes[1]: whole is given twice"},
		"no mode":             {"gpus: [{modes: []}]", "gpus[0].modes: is empty; allowed: whole, mig, mps, timeslice"},
		"settings of default": {"gpus: [{timeSlice: {replicas: 2}}]", "gpus[0].timeSlice: has no effect without mode timeslice; add it to modes or remove timeSlice"},
		"mps without mode":    {"gpus: [{modes: [whole], mps: {replicas: 2}}]", "gpus[0].mps: has no effect without mode mps; add it to modes or remove mps"},
		"mig without mode":    {"gpus: [{modes: [whole], mig: {}}]", "gpus[0].mig: has no effect without mode mig; add it to modes or remove mig"},
		"mig":                 {"gpus: [{modes: [mig]}]", ""},

		"time-slice alone": {"gpus: [{modes: [timeslice]}]", "gpus[0].timeSlice.replicas: is missing; mode timeslice needs the number of claims that share the GPU, 2 or more"},
		"no replicas":      {"gpus: [{modes: [timeslice], timeSlice: {}}]", "gpus[0].timeSlice.replicas: is missing; mode timeslice needs the number of claims that share the GPU, 2 or more"},
		"one replica":      {"gpus: [{modes: [timeslice], timeSlice: {replicas: 1}}]", ""},
		"interval":         {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, interval: 2ms}}]", `gpus[0].timeSlice.interval: "2ms" is not known; allowed: Default, Short, Medium, Long`},
		"share name": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: nvidia.com/gpu}}]",
			`gpus[0].timeSlice.shareName: "nvidia.com/gpu" is not a name; allowed: 1 to 63 lower-case letters, digits and -, neither first nor last a -`},
		"share called none": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, shareName: none}}]",
			"gpus[0].timeSlice.shareName: none is what devices without a share name say; choose another name"},

		"all profiles":        {"gpus: [{modes: [mig], mig: {replicas: {1g.10gb+me.all: 2, 1g.24gb-me: 2}}}]", ""},
		"no profile":          {"gpus: [{modes: [mig], mig: {profiles: []}}]", "gpus[0].mig.profiles: is empty; name profiles, or remove it for all that the GPU has"},
		"profile":             {"gpus: [{modes: [mig], mig: {profiles: [1g]}}]", `gpus[0].mig.profiles[0]: "1g" is not a MIG profile; allowed: names as nvidia-smi mig -lgip prints, for example 1g.10gb or 1g.10gb+me`},
		"profile twice":       {"gpus: [{modes: [mig], mig: {profiles: [1g.5gb, 1g.5gb]}}]", "gpus[0].mig.profiles[1]: 1g.5gb is given twice"},
		"no slice":            {"gpus: [{modes: [mig], mig: {replicas: {1g.5gb: 0}}}]", ""},
		"slices made by hand": {"gpus: [{mig: {replicas: {1g.5gb: 2}, resourceNames: {1g.5gb: nvidia.com/mig-1g.5gb.shared}}}]", ""},
		"profiles alone":      {"gpus: [{modes: [whole], mig: {profiles: [1g.5gb], replicas: {1g.5gb: 2}}}]", "gpus[0].mig: has no effect without mode mig; add it to modes or remove mig"},
		"no name":             {"gpus: [{modes: [mig], mig: {resourceNames: {1g.5gb: nvidia.com/a}}}]", "gpus[0].mig.resourceNames[1g.5gb]: has no effect without replicas[1g.5gb]; add it there or remove it here"},
		"resource": {"gpus: [{modes: [mig, timeslice], timeSlice: {replicas: 2, resourceName: gpu.shared}, mig: {replicas: {1g.5gb: 2}, resourceNames: {1g.5gb: a/}}}]",
			`gpus[0].timeSlice.resourceName: "gpu.shared" is not an extended resource; allowed: <domain>/<name>, for example nvidia.com/gpu-2gb; ` +
				`gpus[0].mig.resourceNames[1g.5gb]: "a/" is not an extended resource; allowed: <domain>/<name>, for example nvidia.com/gpu-2gb`},
		"resource of Kubernetes": {"gpus: [{modes: [timeslice], timeSlice: {replicas: 2, resourceName: node.kubernetes.io/gpu}}]",
			`gpus[0].timeSlice.resourceName: "node.kubernetes.io/gpu" is not an extended resource; allowed: <domain>/<name>, for example nvidia.com/gpu-2gb`},
		"another profile": {"gpus: [{modes: [mig], mig: {profiles: [1g.5gb], replicas: {2g.10gb: 2}}}]", "gpus[0].mig.replicas[2g.10gb]: is not among profiles; add it there or remove it here"},
	})
}

func TestNodeConfigMPS(t *testing.T) {
	mps := func(settings string) string { return "gpus: [{modes: [mps], mps: {" + settings + "}}]" }
	memory := func(bounds string) string { return mps("replicas: 2, memory: {" + bounds + "}") }
	testRefusals(t, nodeHeader, map[string]refusal{
		"mode alone":      {"gpus: [{modes: [mps]}]", "gpus[0].mps: is missing; mode mps needs mps.replicas, mps.memory.default or both"},
		"no size":         {mps("memory: {min: 1Gi}"), "gpus[0].mps: has neither replicas nor memory.default; give one: a share without a size cannot be offered"},
		"size":            {mps("memory: {default: 1Gi}"), ""},
		"replicas":        {mps("replicas: 61"), ""},
		"part of a Mi":    {memory("default: 1G"), "gpus[0].mps.memory.default: 1G is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"min over max":    {memory("min: 2Gi, max: 1Gi"), "gpus[0].mps.memory.min: 2Gi is more than max 1Gi; allowed: min ≤ default ≤ max"},
		"default over":    {memory("default: 2Gi, max: 1Gi"), "gpus[0].mps.memory.default: 2Gi is more than max 1Gi; allowed: min ≤ default ≤ max"},
		"default under":   {memory("default: 1Gi, min: 2Gi"), "gpus[0].mps.memory.min: 2Gi is more than default 1Gi; allowed: min ≤ default ≤ max"},
		"off step":        {memory("default: 1Gi, step: 3Mi"), "gpus[0].mps.memory.default: 1Gi is not min plus a multiple of step 3Mi"},
		"step from min":   {memory("min: 1Gi, default: 1027Mi, max: 1030Mi, step: 3Mi"), ""},
		"max off step":    {memory("min: 1Gi, max: 1028Mi, step: 3Mi"), "gpus[0].mps.memory.max: 1028Mi is not min plus a multiple of step 3Mi"},
		"threads":         {mps("replicas: 1, activeThreadPercentage: {default: 101, total: 0}"), "gpus[0].mps.activeThreadPercentage.default: 101 is out of range; allowed: 0 to 100; gpus[0].mps.activeThreadPercentage.total: 0 is out of range; allowed: 1 to 6000"},
		"shm":             {mps("replicas: 1, shmSize: 1"), "gpus[0].mps.shmSize: 1 is not allowed; allowed: a whole number of Mi, at least 1Mi"},
		"namespace":       {mps("replicas: 1, namespaces: [A]"), `gpus[0].mps.namespaces[0]: "A" is not a name; allowed: 1 to 63 lower-case letters, digits and -, neither first nor last a -`},
		"resource":        {mps("replicas: 1, resourceName: 'nvidia.com/gpu 2gb'"), `gpus[0].mps.resourceName: "nvidia.com/gpu 2gb" is not an extended resource; allowed: <domain>/<name>, for example nvidia.com/gpu-2gb`},
		"namespace twice": {mps("replicas: 1, namespaces: [a, a]"), "gpus[0].mps.namespaces[1]: a is given twice"},
	})
}
