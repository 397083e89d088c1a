package nodeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// mpsEntries is an entry with mode mps and these settings for all GPUs.
func mpsEntries(settings string) string { return "[{modes: [whole, mps], mps: {" + settings + "}}]" }

// TestResolve_MPS_Sharing: the GPU has 40 GiB less 2 bytes, so that nothing is a multiple of 1Mi by chance.
func TestResolve_MPS_Sharing(t *testing.T) {
	t.Parallel()
	const all = 40*gi - 2
	usable := 40*gi - 513*mi
	threads := gpu.MPSThreads{Total: 100}
	for name, c := range map[string]struct {
		settings string
		cuda     string
		want     gpu.MPSSharing
	}{
		"equal parts": {"replicas: 3", "13.0", gpu.MPSSharing{ShmBytes: gi, MPSSize: gpu.MPSSize{Replicas: 3, Threads: threads, Memory: gpu.MPSMemory{
			Total: usable, Default: usable / 3 / mi * mi, Min: mi, Max: usable, Step: mi}}}},
		"equal parts in steps": {"replicas: 3, memory: {min: 2Gi, step: 1Gi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 3, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: 13 * gi, Min: 2 * gi, Max: 39 * gi, Step: gi}}}},
		"equal parts up to a bound": {"replicas: 2, memory: {max: 4Gi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 2, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: 4 * gi, Min: mi, Max: 4 * gi, Step: mi}}}},
		"one claim": {"replicas: 1", "13.0", gpu.MPSSharing{ShmBytes: gi, MPSSize: gpu.MPSSize{Replicas: 1, Threads: threads, Memory: gpu.MPSMemory{
			Total: usable, Default: usable, Min: mi, Max: usable, Step: mi}}}},
		"one size": {"replicas: 2, memory: {default: 2Gi, min: 2Gi, max: 2Gi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 2, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: 2 * gi, Min: 2 * gi, Max: 2 * gi, Step: mi}}}},
		"one size that needs all of the GPU": {"replicas: 39, memory: {min: 1Gi, max: 1Gi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 39, Threads: threads, Memory: gpu.MPSMemory{Total: usable, Default: gi, Min: gi, Max: gi, Step: mi}}}},
		"more than what is left by MPS": {"replicas: 2, memory: {min: 20400Mi, max: 20400Mi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 2, Threads: threads, Memory: gpu.MPSMemory{
				Total: 2 * 20400 * mi, Default: 20400 * mi, Min: 20400 * mi, Max: 20400 * mi, Step: mi}}}},
		"as many as MPS supports": {"memory: {default: 4Gi}", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 48, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: 4 * gi, Min: mi, Max: usable, Step: mi}}}},
		"as many as a later MPS supports": {"memory: {default: 4Gi, max: 80Gi}", "13.1", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 60, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: 4 * gi, Min: mi, Max: usable, Step: mi}}}},
		"all settings": {"replicas: 60, shareName: a, resourceName: nvidia.com/a, memory: {default: 512Mi}, activeThreadPercentage: {default: 10, total: 300}, " +
			"shmSize: 2Gi, namespaces: [team-a]", "13.1", gpu.MPSSharing{ShmBytes: 2 * gi, ShareName: "a", Resource: "nvidia.com/a", Namespaces: []string{"team-a"},
			MPSSize: gpu.MPSSize{Replicas: 60, Threads: gpu.MPSThreads{Default: 10, Total: 300}, Memory: gpu.MPSMemory{
				Total: usable, Default: 512 * mi, Min: mi, Max: usable, Step: mi}}}},
		"empty namespaces": {"replicas: 1, namespaces: []", "13.0", gpu.MPSSharing{ShmBytes: gi,
			MPSSize: gpu.MPSSize{Replicas: 1, Threads: threads, Memory: gpu.MPSMemory{
				Total: usable, Default: usable, Min: mi, Max: usable, Step: mi}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &gpu.Node{Driver: gpu.Driver{CUDAVersion: c.cuda}, GPUs: gpus()[:1]}
			node.GPUs[0].Capacity.MemoryBytes = uint64(all)
			layout, refused, err := nodeconfig.Resolve(config(t, mpsEntries(c.settings)), node)
			require.NoError(t, err)
			assert.Empty(t, refused)
			assert.Empty(t, cmp.Diff(gpu.Layout{h0: {Whole: true, MPS: &c.want, OneShare: true}}, layout))
			m := layout[h0].MPS.Memory
			assert.True(t, m.Min <= m.Default && m.Default <= m.Max && m.Max <= m.Total && m.Total <= all)
			for _, n := range []int64{m.Default - m.Min, m.Max - m.Min} {
				assert.Zero(t, n%m.Step, "the API server refuses other bounds")
			}
			assert.Zero(t, m.Total%mi)
		})
	}
}

// TestResolve_MPS_Refused: the GPUs that the sentence is about are refused, and no others.
func TestResolve_MPS_Refused(t *testing.T) {
	t.Parallel()
	const h100 = "NVIDIA H100 80GB HBM3"
	for name, c := range map[string]struct {
		entries, want string
		refused       []gpu.UUID
		cuda          string
	}{
		"an old GPU": {
			mpsEntries("replicas: 2"), "gpus[0].modes[1]: the driver does not report the memory of NVIDIA A30, which MPS shares divide; set memory of the entry in a NodeConfig, or " +
				"remove mode mps, or give such GPUs an entry of their own without it; gpus[0].modes[1]: NVIDIA L40S has compute capability 6.1, and MPS isolates " +
				"and limits its clients from 7.0 on; remove mode mps, or give such GPUs an entry of their own without it", []gpu.UUID{a2, l3}, "13.0",
		},
		"more clients than supported": {
			"[{select: {indices: [0, 1]}, modes: [mps], mps: {replicas: 49}}]", "gpus[0].mps.replicas: 49 is out of range; MPS supports 48 clients on a GPU " +
				"before CUDA 13.1, and the NVIDIA driver has CUDA 13.0", []gpu.UUID{h0, h1}, "13.0",
		},
		"shares of one size": {
			"[{select: {indices: [0]}, modes: [mps], mps: {replicas: 2, memory: {min: 40Gi, max: 40Gi}}}]",
			"gpus[0].mps: 2 shares of 40Gi are more than the 81559 MiB of " + h100 + "; make them fewer or smaller", []gpu.UUID{h0}, "13.1",
		},
		"the largest size of all": {
			"[{select: {indices: [0]}, modes: [mps], mps: {replicas: 60, memory: {min: 8191Pi, max: 8191Pi}}}]",
			"gpus[0].mps: 60 shares of 8191Pi are more than the 81559 MiB of " + h100 + "; make them fewer or smaller", []gpu.UUID{h0}, "13.1",
		},
		"a large share": {
			"[{select: {indices: [0]}, modes: [mps], mps: {memory: {default: 80Gi, min: 80Gi}}}]",
			"gpus[0].mps.memory.min: 80Gi is more than the 81047 MiB that all MPS shares of " + h100 + " have; make it smaller", []gpu.UUID{h0}, "13.1",
		},
		"a large default": {
			"[{select: {indices: [0]}, modes: [mps], mps: {memory: {default: 80Gi}}}]",
			"gpus[0].mps.memory.default: 80Gi is more than the 81047 MiB that all MPS shares of " + h100 + " have; make it smaller", []gpu.UUID{h0}, "13.1",
		},
		"equal parts that are too small": {
			"[{select: {indices: [0]}, modes: [mps], mps: {replicas: 48, memory: {min: 2Gi}}}]",
			"gpus[0].mps.memory.min: 48 shares of 2Gi are more than the 81047 MiB that all MPS shares of " + h100 + " have; make them fewer or smaller", []gpu.UUID{h0}, "13.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &gpu.Node{Driver: gpu.Driver{CUDAVersion: c.cuda}, GPUs: gpus()}
			node.GPUs[2].Capacity.MemoryBytes, node.GPUs[3].Product.ComputeCapability = 0, "6.1"
			layout, refused, err := nodeconfig.Resolve(config(t, c.entries), node)
			require.EqualError(t, err, "NodeConfig: "+c.want)
			assert.ElementsMatch(t, c.refused, refused)
			for _, id := range refused {
				assert.NotContains(t, layout, id)
			}
		})
	}
}

// TestResolve_PluginFileWithMPS_Exact: two shares of 2 GiB on GPU 0, and the other GPUs whole.
func TestResolve_PluginFileWithMPS_Exact(t *testing.T) {
	t.Parallel()
	resolve := func(keys string) (gpu.Layout, []gpu.UUID, error) {
		c, _, err := nodeconfig.Parse([]byte("version: v1\nsharing: {mps: {failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, "+keys+"}]}}"), "")
		require.NoError(t, err)
		return nodeconfig.Resolve(c, &gpu.Node{Driver: gpu.Driver{CUDAVersion: "13.0"}, GPUs: gpus()})
	}
	layout, _, err := resolve("rename: nvidia.com/gpu-2gb, memoryGB: 2, replicas: 2, devices: ['0']")
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(gpu.Layout{h0: {OneShare: true, MPS: &gpu.MPSSharing{
		ShareName: "gpu-2gb", Resource: "nvidia.com/gpu-2gb", ShmBytes: gi, MPSSize: gpu.MPSSize{
			Replicas: 2, Threads: gpu.MPSThreads{Total: 100}, Memory: gpu.MPSMemory{Total: 81047 * mi, Default: 2 * gi, Min: 2 * gi, Max: 2 * gi, Step: mi},
		},
	}}}, layout))
	assert.Equal(t, gpu.Modes{Whole: true}, layout.Of(&gpus()[1]), "it has no entry")

	layout, refused, err := resolve("rename: nvidia.com/gpu-1gb, memoryGB: 1, replicas: 49, devices: ['0']")
	require.EqualError(t, err, "device plugin configuration: sharing.mps.resources[0].replicas: 49 is out of range; MPS supports 48 clients on a GPU "+
		"before CUDA 13.1, and the NVIDIA driver has CUDA 13.0")
	assert.Equal(t, []gpu.UUID{h0}, refused)
	assert.Empty(t, layout)
}

// TestParse_TwoSizesOfAllGPUs_Refused, with advice how to configure them.
func TestParse_TwoSizesOfAllGPUs_Refused(t *testing.T) {
	t.Parallel()
	_, _, err := nodeconfig.Parse([]byte("version: v1\nsharing: {mps: {resources: [{name: gpu, rename: a, replicas: 2, memoryGB: 2, devices: all}, "+
		"{name: gpu, rename: b, replicas: 2, memoryGB: 4, devices: all}]}}"), "")
	require.ErrorContains(t, err, "sharing.mps.resources[1].devices: are all, like the devices of sharing.mps.resources[0]; a GPU is shared in one way: list devices, or "+
		"remove one of them; for shares of any size of one GPU, write a NodeConfig with mode mps and request capacity.requests.memory in claims")
}
