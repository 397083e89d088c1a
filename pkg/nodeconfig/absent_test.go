package nodeconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// absentUUID is of a GPU that the node of gpus lacks.
const absentUUID = "GPU-00000000-0000-0000-0000-00000000000f"

// TestResolve_NothingMatches_SaidAsMustMatchSays: hardware that a config names and the node lacks is reported together with the node's
// hardware: as a problem, in Absent, or not at all.
func TestResolve_NothingMatches_SaidAsMustMatchSays(t *testing.T) {
	t.Parallel()
	const (
		uuids    = "gpus[0].select.uuids: no matching device with UUID: " + absentUUID + "; this node has: " + string(h0+", "+h1+", "+a2+", "+l3)
		indices  = "gpus[0].select.indices: no matching device at index: 7, 9; this node has: 0, 1, 2, 3"
		products = "gpus[0].select.products: no matching device with product name: NVIDIA-B200*; this node has: NVIDIA A30, NVIDIA H100 80GB HBM3, NVIDIA L40S"
		profile  = "gpus[0].mig.replicas[1g.5gb]: no GPU that this is for has profile 1g.5gb; they have 1g.6gb, 2g.12gb"
		correct  = "; correct it, or remove it"
		many     = "; if this is for several nodes, set mustMatch of the select to false"
	)
	for name, c := range map[string]struct {
		// entry is without mustMatch; %s marks its place.
		entry                     string
		required, unset, optional string
		// mentioned is the result of Absent without mustMatch.
		mentioned string
	}{
		"UUID":     {"{select: {uuids: [" + absentUUID + ", " + string(h1) + "]%s}}", uuids + correct, uuids + correct + many, "", ""},
		"indices":  {"{select: {indices: [0, 7, 9]%s}}", indices + correct, "", "", indices},
		"products": {`{select: {products: ["NVIDIA-B200*"]%s}}`, products + correct, "", "", products},
		"all lists": {
			`{select: {indices: [7, 9], uuids: [` + absentUUID + `], products: ["NVIDIA-B200*", "*A30"]%s}}`,
			uuids + correct + "; " + indices + correct + "; " + products + correct, uuids + correct + many, "", indices + "; " + products,
		},
		"replicas of a profile": {"{select: {indices: [2, 3]%s}, mig: {replicas: {1g.5gb: 2, 1g.6gb: 2}}}", profile + correct, "", "", profile},
		"replicas of a profile without MIG": {
			"{select: {indices: [3]%s}, mig: {replicas: {1g.5gb: 2}}}",
			"gpus[0].mig.replicas[1g.5gb]: no GPU that this is for has profile 1g.5gb; they have no MIG profile" + correct, "", "",
			"gpus[0].mig.replicas[1g.5gb]: no GPU that this is for has profile 1g.5gb; they have no MIG profile",
		},
		"profile to advertise": {
			"{select: {indices: [2]%s}, modes: [whole, mig], mig: {profiles: [1g.6gb, 1g.5gb]}}",
			"gpus[0].mig.profiles[1]: NVIDIA A30 has no profile 1g.5gb; it has: 1g.6gb, 2g.12gb",
			"gpus[0].mig.profiles[1]: NVIDIA A30 has no profile 1g.5gb; it has: 1g.6gb, 2g.12gb", "", "",
		},
		"only profile to advertise": {
			"{select: {indices: [2]%s}, modes: [mig], mig: {profiles: [1g.5gb]}}",
			"gpus[0].mig.profiles[0]: NVIDIA A30 has no profile 1g.5gb; it has: 1g.6gb, 2g.12gb",
			"gpus[0].mig.profiles[0]: NVIDIA A30 has no profile 1g.5gb; it has: 1g.6gb, 2g.12gb",
			"gpus[0].mig.profiles[0]: NVIDIA A30 has no profile 1g.5gb; it has: 1g.6gb, 2g.12gb", "",
		},
		"profiles that some GPUs have": {"{select: {indices: [0, 2]%s}, mig: {replicas: {1g.10gb: 2, 1g.6gb: 2}}}", "", "", "", ""},
	} {
		for mustMatch, want := range map[string][2]string{", mustMatch: true": {c.required}, "": {c.unset, c.mentioned}, ", mustMatch: false": {c.optional}} {
			t.Run(name+mustMatch, func(t *testing.T) {
				t.Parallel()
				cfg, node := config(t, "["+fmt.Sprintf(c.entry, mustMatch)+"]"), &gpu.Node{GPUs: gpus()}
				_, _, err := nodeconfig.Resolve(cfg, node)
				problem := ""
				if err != nil {
					problem = strings.TrimPrefix(err.Error(), "NodeConfig: ")
				}
				assert.Equal(t, want[0], problem)
				assert.Equal(t, want[1], strings.TrimPrefix(nodeconfig.Absent(cfg, node), "NodeConfig: "))
			})
		}
	}
}

// TestResolve_ProductSpellings_Match: names are written as NVML spells them, or are copied from a node's label nvidia.com/gpu.product.
func TestResolve_ProductSpellings_Match(t *testing.T) {
	t.Parallel()
	for glob, want := range map[string]gpu.Layout{
		"NVIDIA H100 80GB HBM3":              {h0: {Whole: true}, h1: {Whole: true}},
		"NVIDIA-H100-80GB-HBM3":              {h0: {Whole: true}, h1: {Whole: true}},
		"nvidia h100*":                       {h0: {Whole: true}, h1: {Whole: true}},
		"nvidia-H100*":                       {h0: {Whole: true}, h1: {Whole: true}},
		"*-[HL]*":                            {h0: {Whole: true}, h1: {Whole: true}, l3: {Whole: true}},
		"NVIDIA-H100-80GB-HBM3-SHARED":       {h0: {Whole: true}, h1: {Whole: true}},
		"NVIDIA-A30-MIG-1g.6gb":              {a2: {Whole: true}},
		"NVIDIA-A30-MIG-1g.6gbme-SHARED":     {a2: {Whole: true}},
		"*A30-MIG-2g.12gb.me":                {a2: {Whole: true}},
		"NVIDIA H100":                        {},
		"NVIDIA-H100":                        {},
		"H100*":                              {},
		"NVIDIA_H100*":                       {},
		"NVIDIA  H100 80GB HBM3":             {},
		"NVIDIA-H100-80GB-HBM3-SHARED-extra": {},
	} {
		layout, _, err := nodeconfig.Resolve(config(t, `[{select: {products: ["`+glob+`"]}}]`), &gpu.Node{GPUs: gpus()})
		require.NoError(t, err, glob)
		assert.Empty(t, cmp.Diff(want, layout), glob)
	}
	odd := gpu.GPU{UUID: h0, Product: gpu.Product{Name: "NVIDIA  Graphics (Device)/2"}}
	layout, _, err := nodeconfig.Resolve(config(t, `[{select: {products: [NVIDIA-Graphics-Device2], mustMatch: true}}]`), &gpu.Node{GPUs: []gpu.GPU{odd}})
	require.NoError(t, err)
	assert.Contains(t, layout, h0, "GPU feature discovery leaves out what a label cannot have")
}

// TestResolve_UnknownFacts_NotAbsent: of a node without known GPUs nothing is absent, and of a GPU that does not respond no product is known.
func TestResolve_UnknownFacts_NotAbsent(t *testing.T) {
	t.Parallel()
	const every = `[{select: {indices: [0, 9], uuids: [` + absentUUID + `], products: [none], mustMatch: true}}]`
	said := func(node *gpu.Node, entries string) string {
		cfg := config(t, entries)
		if _, _, err := nodeconfig.Resolve(cfg, node); err != nil {
			return err.Error()
		}
		return nodeconfig.Absent(cfg, node)
	}
	assert.Empty(t, said(&gpu.Node{}, every))
	fault := gpu.Fault{Index: 4, Err: gpu.ErrLost}
	assert.Equal(t, "NodeConfig: gpus[0].select.indices: no matching device at index: 9; this node has: 0, 1, 2, 3, 4; correct it, or remove it",
		said(&gpu.Node{GPUs: gpus(), Faults: []gpu.Fault{fault}}, every))
	fault.UUID = absentUUID
	for _, entries := range []string{
		`[{select: {uuids: [` + absentUUID + `], indices: [0, 4], products: [lost], mustMatch: true}, modes: [mig]}]`,
		`[{select: {uuids: [` + absentUUID + `], indices: [0], products: [lost]}, modes: [mig]}]`,
	} {
		node := &gpu.Node{GPUs: gpus(), Faults: []gpu.Fault{fault}}
		assert.Empty(t, said(node, entries))
		layout, _, err := nodeconfig.Resolve(config(t, entries), node)
		require.NoError(t, err)
		assert.Equal(t, gpu.Layout{h0: {MIG: []string{"1g.10gb", "2g.20gb", "3g.40gb"}}}, layout)
	}
}

// mixedSharing shares all kinds of GPUs of a cluster, as an example of the GPU Operator does.
const mixedSharing = `version: v1
flags: {migStrategy: mixed}
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
    - {name: nvidia.com/mig-1g.5gb, replicas: 2}
    - {name: nvidia.com/mig-1g.10gb, replicas: 2}
    - {name: nvidia.com/mig-7g.40gb, replicas: 2}
`

// TestResolve_OneDevicePluginFileForManyNodes_NoProblem: lines for the boards and profiles of other nodes are optional there.
func TestResolve_OneDevicePluginFileForManyNodes_NoProblem(t *testing.T) {
	t.Parallel()
	const in, at = "device plugin configuration: ", "sharing.timeSlicing.resources"
	for name, c := range map[string]struct {
		raw, mentioned string
		on             []gpu.GPU
	}{
		"GPU Operator's": {mixedSharing, in + at + "[1]: no GPU that this is for has profile 1g.5gb; they have 1g.10gb, 2g.20gb, 3g.40gb; " +
			at + "[3]: no GPU that this is for has profile 7g.40gb; they have 1g.10gb, 2g.20gb, 3g.40gb", gpus()[:2]},
		"boards of two nodes": {
			"version: v1\nsharing: {mps: {resources: [{name: gpu, rename: part, memoryGB: 2, replicas: 2, devices: [" + string(l3) + ", " + absentUUID + ", 9]}]}}",
			in + "sharing.mps.resources[0]: no matching device with UUID: " + absentUUID + "; this node has: " + string(l3) +
				"; sharing.mps.resources[0]: no matching device at index: 9; this node has: 3", gpus()[3:],
		},
		"a number": {"version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 8}]}}", "", gpus()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _, err := nodeconfig.Parse([]byte(c.raw), "")
			require.NoError(t, err)
			layout, refused, err := nodeconfig.Resolve(cfg, &gpu.Node{GPUs: c.on})
			require.NoError(t, err)
			assert.Empty(t, refused)
			assert.Len(t, layout, len(c.on))
			assert.Equal(t, c.mentioned, nodeconfig.Absent(cfg, &gpu.Node{GPUs: c.on}))
		})
	}
	assert.Empty(t, nodeconfig.Absent((*v1alpha1.NodeConfig)(nil), &gpu.Node{GPUs: gpus()}))
}

// TestAbsent_LongLists_Bounded: a list may be as long as a configuration, and an Event has 1,024 bytes.
func TestAbsent_LongLists_Bounded(t *testing.T) {
	t.Parallel()
	var indices []string
	for i := range 1000 {
		indices = append(indices, fmt.Sprint(100+i))
	}
	said := nodeconfig.Absent(config(t, "[{select: {indices: ["+strings.Join(indices, ", ")+"]}}]"), &gpu.Node{GPUs: gpus()})
	assert.Equal(t, "NodeConfig: gpus[0].select.indices: no matching device at index: 100, 101, 102, 103, 104, 105, 106, 107 and 992 more; "+
		"this node has: 0, 1, 2, 3", said)
}
