package nodeconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// refuses parses bodies of device plugin files and compares the errors.
func refuses(t *testing.T, cases map[string]struct{ raw, want string }) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, warnings, err := nodeconfig.Parse([]byte("version: v1\n"+c.raw), "node.yaml")
			assert.Nil(t, config)
			assert.Empty(t, warnings)
			require.EqualError(t, err, "reading the node configuration in node.yaml: device plugin configuration: "+c.want)
		})
	}
}

func TestParse_PluginFlags_Refused(t *testing.T) {
	t.Parallel()
	refuses(t, map[string]struct{ raw, want string }{
		"strategy":       {"flags: {migStrategy: all}", "flags.migStrategy: unknown strategy: all; allowed: none, single, mixed"},
		"unknown flag":   {"flags: {plugin: {passDevices: true}}", `flags.plugin: unknown field "passDevices"; valid fields: passDeviceSpecs, deviceListStrategy, deviceIDStrategy, cdiAnnotationPrefix, nvidiaCTKPath, containerDriverRoot, kubeletSocket, cdiFeatureFlags`},
		"another case":   {"flags: {gfd: {oneShot: true}}", `flags.gfd: unknown field "oneShot"; valid fields: oneshot, noTimestamp, sleepInterval, outputFile, machineTypeFile`},
		"no bool":        {"flags: {failOnInitError: maybe}", `flags.failOnInitError: must be a boolean, got string "maybe"`},
		"discovery":      {"flags: {deviceDiscoveryStrategy: tegra}", "flags.deviceDiscoveryStrategy: invalid --device-discovery-strategy option: tegra; GPUs are found through NVML only: remove it"},
		"IDs":            {"flags: {plugin: {deviceIDStrategy: name}}", "flags.plugin.deviceIDStrategy: invalid --device-id-strategy option: name; allowed: uuid, index"},
		"list strategy":  {"flags: {plugin: {deviceListStrategy: cri}}", "flags.plugin.deviceListStrategy: invalid --device-list-strategy option: invalid strategy: cri; allowed: envvar, volume-mounts, cdi-annotations, cdi-cri"},
		"one of a list":  {"flags: {plugin: {deviceListStrategy: [envvar, 1]}}", "flags.plugin.deviceListStrategy: invalid --device-list-strategy option: invalid strategy: 1; allowed: envvar, volume-mounts, cdi-annotations, cdi-cri"},
		"IMEX":           {"imex: {required: true}", "imex.required: containers get no IMEX channels here; remove it: IMEX channels are allocated by claims of NVIDIA's ComputeDomain driver, which runs beside this one"},
		"no pattern":     {"resources: {gpus: [{name: a}]}", "resources.gpus[0]: resources must have a 'pattern' field set"},
		"no name":        {"resources: {mig: [{pattern: a, name: b}, {pattern: a}]}", "resources.mig[1]: resources must have a 'name' field set"},
		"bad name":       {"resources: {gpus: [{pattern: a, name: A_b}]}", "resources.gpus[0].name: incorrect format for resource name 'nvidia.com/A_b'; allowed after nvidia.com/: lower-case letters, digits, - and ., first and last a letter or digit"},
		"several things": {"flags: {migStrategy: x}\nimex: {required: true}\nsharing: {mps: {}}", "flags.migStrategy: unknown strategy: x; allowed: none, single, mixed; sharing.mps.resources: no resources specified; name at least one, or remove the section; imex.required: containers get no IMEX channels here; remove it: IMEX channels are allocated by claims of NVIDIA's ComputeDomain driver, which runs beside this one"},
	})
	_, _, err := nodeconfig.Parse([]byte("version: v1\nflags: {nvidiaDriverRoot: run/nvidia}"), "node.yaml")
	require.EqualError(t, err, `reading the node configuration in node.yaml: NodeConfig: flags.nvidiaDriverRoot: must be empty or an absolute path without .., got "run/nvidia"`)
}

func TestParse_TimeSlicing_Refused(t *testing.T) {
	t.Parallel()
	resources := func(list string) string { return "sharing: {timeSlicing: {resources: [" + list + "]}}" }
	one := func(keys string) string { return resources("{name: nvidia.com/gpu, replicas: 2, " + keys + "}") }
	const at, r0, again = "sharing.timeSlicing.resources", "sharing.timeSlicing.resources[0].", "; a GPU is shared in one way: "
	refuses(t, map[string]struct{ raw, want string }{
		"no resources":    {"sharing: {timeSlicing: {}}", at + ": no resources specified; name at least one, or remove the section"},
		"empty resources": {resources(""), at + ": no resources specified; name at least one, or remove the section"},
		"no name":         {resources("{replicas: 2}"), r0 + "name: no resource name specified; name nvidia.com/gpu or nvidia.com/mig-<profile>"},
		"no replicas":     {resources("{name: gpu}"), r0 + "replicas: no replicas specified; give the number of claims that share a device, 2 or more"},
		"half a replica":  {resources("{name: gpu, replicas: 2.5}"), r0 + "replicas: must be an integer, got number 2.5"},
		"unknown key":     {one("memoryGB: 2"), strings.TrimSuffix(r0, ".") + `: unknown field "memoryGB"; valid fields: name, rename, devices, replicas`},
		"another device":  {resources("{name: nvidia.com/gpu-a100, replicas: 2}"), r0 + "name: nvidia.com/gpu-a100 is no resource of this node; allowed: nvidia.com/gpu, or nvidia.com/mig-<profile> as in nvidia.com/mig-1g.10gb"},
		"another domain":  {resources("{name: example.com/gpu, replicas: 2}"), r0 + "name: incorrect format for resource name 'nvidia.com/example.com/gpu'; allowed after nvidia.com/: lower-case letters, digits, - and ., first and last a letter or digit"},
		"compute slice":   {resources("{name: mig-1c.3g.40gb, replicas: 2}"), r0 + "name: nvidia.com/mig-1c.3g.40gb is no resource of this node; allowed: nvidia.com/gpu, or nvidia.com/mig-<profile> as in nvidia.com/mig-1g.10gb"},
		"shared MIG":      {resources("{name: mig-1g.5gb.shared, replicas: 2}"), r0 + "name: nvidia.com/mig-1g.5gb.shared is no resource of this node; allowed: nvidia.com/gpu, or nvidia.com/mig-<profile> as in nvidia.com/mig-1g.10gb"},
		"long rename":     {one("rename: " + strings.Repeat("x", 53)), r0 + "rename: fully-qualified resource name must be 63 characters or less: nvidia.com/" + strings.Repeat("x", 53)},
		"bad rename":      {one("rename: gpu_2"), r0 + "rename: incorrect format for resource name 'nvidia.com/gpu_2'; allowed after nvidia.com/: lower-case letters, digits, - and ., first and last a letter or digit"},
		"taken rename":    {one("rename: mig-1g.10gb"), r0 + "rename: nvidia.com/mig-1g.10gb is the name of devices that are not shared; choose another"},
		"rename none":     {one("rename: none"), r0 + "rename: none is what devices without a share name say; choose another name"},
		"same share name": {resources("{name: gpu, replicas: 2, rename: a.b, devices: [0]}, {name: gpu, replicas: 2, rename: a-b, devices: [1]}"),
			"sharing.timeSlicing.resources[1].rename: nvidia.com/a-b and nvidia.com/a.b both come to the share name a-b; choose another name"},
		"some devices":   {one("devices: some"), r0 + "devices: devices set as 'some' but the only valid string input is 'all'; list GPUs by index or UUID"},
		"no count":       {one("devices: 0"), r0 + "devices: devices set as '0' but a count of devices must be > 0"},
		"half a count":   {one("devices: 1.5"), r0 + "devices: devices set as '1.5' but a count of devices must be > 0"},
		"large count":    {one("devices: 65"), r0 + "devices: devices set as '65'; allowed: at most 64, or all"},
		"count of MIG":   {resources("{name: mig-1g.5gb, replicas: 2, devices: 2}"), r0 + "devices: a count of MIG devices is not known beforehand; list the GPUs whose MIG devices are meant, or write all"},
		"an object":      {one("devices: {index: 0}"), r0 + "devices: unrecognized type for devices spec; allowed: all, a number, or a list of indices and UUIDs of GPUs"},
		"no device":      {one("devices: []"), r0 + "devices: no devices specified; list GPUs by index or UUID, or write all"},
		"strange device": {one("devices: [0, GPU-1, -1, true]"), r0 + "devices[1]: unsupported type for device in devices list: GPU-1; allowed: an index or a UUID, as nvidia-smi -L prints them; " + r0 + "devices[2]: unsupported type for device in devices list: -1; allowed: an index or a UUID, as nvidia-smi -L prints them; " + r0 + "devices[3]: unsupported type for device in devices list: true; allowed: an index or a UUID, as nvidia-smi -L prints them"},
		"MIG index":      {resources("{name: mig-1g.5gb, replicas: 2, devices: ['0:1']}"), r0 + "devices[0]: 0:1 is one MIG device; MIG devices are shared by profile: name the resource nvidia.com/mig-<profile> and list GPUs here"},
		"MIG UUID":       {one("devices: [MIG-0a1b2c3d-0000-1111-2222-0123456789ab]"), r0 + "devices[0]: MIG-0a1b2c3d-0000-1111-2222-0123456789ab is one MIG device; MIG devices are shared by profile: name the resource nvidia.com/mig-<profile> and list GPUs here"},
		"device twice":   {one("devices: [1, '1']"), r0 + "devices[1]: GPU 1 is listed twice"},
		"all twice":      {resources("{name: gpu, replicas: 2}, {name: gpu, replicas: 3}"), "sharing.timeSlicing.resources[1].devices: are all, like the devices of sharing.timeSlicing.resources[0]" + again + "list devices, or remove one of them"},
	})
}

func TestParse_MPS_Refused(t *testing.T) {
	t.Parallel()
	one := func(keys string) string { return "sharing: {mps: {resources: [{" + keys + "}]}}" }
	const at, r0 = "sharing.mps.resources", "sharing.mps.resources[0]."
	refuses(t, map[string]struct{ raw, want string }{
		"no resources":      {"sharing: {mps: {renameByDefault: true}}", at + ": no resources specified; name at least one, or remove the section"},
		"no name":           {one("replicas: 2"), r0 + "name: no resource name specified; name nvidia.com/gpu or nvidia.com/mig-<profile>"},
		"no memory":         {one("name: gpu, replicas: 2, devices: [0]"), r0 + "memoryGB: no memoryGB specified; give the memory of a share in GiB, or remove devices for equal parts of every GPU"},
		"no devices":        {one("name: gpu, replicas: 2, memoryGB: 2"), r0 + "devices: no devices specified; list GPUs by index or UUID, or write all"},
		"no replicas":       {one("name: gpu, memoryGB: 2, devices: all"), r0 + "replicas: no replicas specified; give the number of shares of each GPU, 1 to 60"},
		"zero memory":       {one("name: gpu, replicas: 2, memoryGB: 0, devices: [0]"), r0 + "memoryGB: 0 is out of range; allowed: 1 and up, in GiB"},
		"part of a GiB":     {one("name: gpu, replicas: 2, memoryGB: 1.5, devices: [0]"), r0 + "memoryGB: must be an integer, got number 1.5"},
		"memory with units": {one("name: gpu, replicas: 2, memoryGB: 2Gi, devices: [0]"), r0 + `memoryGB: must be an integer, got string "2Gi"`},
		"MIG profile, all":  {one("name: nvidia.com/mig-1g.10gb, replicas: 2, memoryGB: 2, devices: all"), r0 + "name: MPS shares of MIG devices are not supported; name nvidia.com/gpu, or share the MIG devices with sharing.timeSlicing"},
		"MIG device listed": {one("name: gpu, replicas: 2, memoryGB: 2, devices: ['1:0']"), r0 + "devices[0]: 1:0 is one MIG device; MIG devices are shared by profile: name the resource nvidia.com/mig-<profile> and list GPUs here"},
	})
}

// TestResolve_SomeGPUsOfAFile_Refused, and the others are shared as configured.
func TestResolve_SomeGPUsOfAFile_Refused(t *testing.T) {
	t.Parallel()
	const (
		slicing, mps = "sharing.timeSlicing.resources", "sharing.mps.resources"
		in           = "device plugin configuration: "
		advice       = "; a GPU is shared in one way: remove it from the devices of one of them"
	)
	selects := func(section string, i, g, j int) string {
		is := gpus()[g]
		return fmt.Sprintf("%s[%d]: selects GPU %d (%s, %s), as does %s[%d]%s", section, i, g, is.Product.Name, is.UUID, section, j, advice)
	}
	sliced := func(list string) string { return "version: v1\nsharing: {timeSlicing: {resources: [" + list + "]}}" }
	mpsOf := func(list string) string { return "version: v1\nsharing: {mps: {resources: [" + list + "]}}" }
	const anySize = "; for shares of any size of one GPU, write a NodeConfig with mode mps and request capacity.requests.memory in claims"
	for name, c := range map[string]struct {
		raw, want string
		refused   []gpu.UUID
		// timeSliced are the GPUs that are advertised for time-slicing.
		timeSliced []gpu.UUID
	}{
		"one replica": {
			sliced("{name: gpu, replicas: 1, devices: [0, 2]}, {name: gpu, replicas: 2, devices: [1]}"),
			in + slicing + "[0].replicas: number of replicas must be >= 2, not 1", []gpu.UUID{h0, a2}, []gpu.UUID{h1},
		},
		"a MIG device for one claim": {
			sliced("{name: mig-1g.10gb, replicas: 1, devices: [0]}, {name: gpu, replicas: 2, devices: [1]}"),
			in + slicing + "[0].replicas: number of replicas must be >= 2, not 1", []gpu.UUID{h0}, []gpu.UUID{h1},
		},
		"one of all": {
			sliced("{name: gpu, replicas: 2}, {name: gpu, replicas: 3, devices: [1]}"), in + selects(slicing, 1, 1, 0),
			[]gpu.UUID{h1}, []gpu.UUID{h0, a2, l3},
		},
		"all after one": {
			sliced("{name: gpu, replicas: 2, devices: [3]}, {name: gpu, replicas: 3}"), in + selects(slicing, 1, 3, 0),
			[]gpu.UUID{l3}, []gpu.UUID{h0, h1, a2},
		},
		"one in both": {
			sliced("{name: gpu, replicas: 2, devices: [0, 1]}, {name: gpu, replicas: 3, devices: [1, 2]}"), in + selects(slicing, 1, 1, 0),
			[]gpu.UUID{h1}, []gpu.UUID{h0, a2},
		},
		"a profile twice": {
			sliced("{name: mig-1g.10gb, replicas: 2, devices: [0, 1]}, {name: mig-1g.10gb, replicas: 3, devices: [" + string(h0) + "]}"),
			in + selects(slicing, 1, 0, 0), []gpu.UUID{h0}, nil,
		},
		"no share, and too many": {
			mpsOf("{name: gpu, rename: a, replicas: 0, memoryGB: 2, devices: [0]}, {name: gpu, rename: b, replicas: 61, memoryGB: 1, devices: [1]}"),
			in + mps + "[0].replicas: 0 is out of range; allowed: 1 to 60; " +
				mps + "[1].replicas: 61 is out of range; allowed: 1 to 60", []gpu.UUID{h0, h1}, nil,
		},
		"equal parts, none": {
			mpsOf("{name: gpu, rename: a, replicas: 0}"), in + mps + "[0].replicas: 0 is out of range; allowed: 1 to 60",
			[]gpu.UUID{h0, h1, a2, l3}, nil,
		},
		"two sizes of one": {
			mpsOf("{name: gpu, rename: a, replicas: 2, memoryGB: 2, devices: [0, 1]}, {name: gpu, rename: b, replicas: 2, memoryGB: 4, devices: [1]}"),
			in + selects(mps, 1, 1, 0) + anySize, []gpu.UUID{h1}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _, err := nodeconfig.Parse([]byte(c.raw), "node.yaml")
			require.NoError(t, err)
			layout, refused, err := nodeconfig.Resolve(config, &gpu.Node{GPUs: gpus()})
			require.EqualError(t, err, c.want)
			assert.Equal(t, c.refused, refused)
			var timeSliced []gpu.UUID
			for _, g := range gpus() {
				if modes, ok := layout[g.UUID]; ok && modes.TimeSlice != nil {
					timeSliced = append(timeSliced, g.UUID)
				}
			}
			assert.Equal(t, c.timeSliced, timeSliced)
		})
	}
}
