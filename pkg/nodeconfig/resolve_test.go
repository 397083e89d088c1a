package nodeconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

const (
	h0  = gpu.UUID("GPU-00000000-0000-0000-0000-000000000000")
	h1  = gpu.UUID("GPU-11111111-0000-0000-0000-000000000000")
	a2  = gpu.UUID("GPU-22222222-0000-0000-0000-000000000000")
	l3  = gpu.UUID("GPU-33333333-0000-0000-0000-000000000000")
	all = `{modes: [whole, mig]}`
)

// gpus are two H100, an A30 and an L40S.
func gpus() []gpu.GPU {
	profiles := func(names ...string) *gpu.MIG {
		m := &gpu.MIG{}
		for i, name := range names {
			m.Profiles = append(m.Profiles, gpu.MIGProfile{ID: i, Name: name})
		}
		return m
	}
	h100 := gpu.Product{Name: "NVIDIA H100 80GB HBM3", MIGCapable: true, ComputeCapability: "9.0"}
	memory := func(mebibytes uint64) gpu.Capacity { return gpu.Capacity{MemoryBytes: mebibytes << 20} }
	return []gpu.GPU{
		{UUID: h0, Index: 0, Product: h100, Capacity: memory(81559), MIG: profiles("1g.10gb", "2g.20gb", "3g.40gb")},
		{UUID: h1, Index: 1, Product: h100, Capacity: memory(81559), MIG: profiles("1g.10gb", "2g.20gb", "3g.40gb")},
		{UUID: a2, Index: 2, Product: gpu.Product{Name: "NVIDIA A30", MIGCapable: true}, Capacity: memory(24576), MIG: profiles("1g.6gb", "2g.12gb")},
		{UUID: l3, Index: 3, Product: gpu.Product{Name: "NVIDIA L40S"}, Capacity: memory(46068)},
	}
}

// config reads entries of gpus as an administrator writes them.
func config(t *testing.T, entries string) *v1alpha1.NodeConfig {
	t.Helper()
	c, err := v1alpha1.DecodeNodeConfig([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\ngpus: " + entries))
	require.NoError(t, err)
	c.Default()
	return c
}

func TestResolve_Entries_Layout(t *testing.T) {
	t.Parallel()
	h100 := []string{"1g.10gb", "2g.20gb", "3g.40gb"}
	whole := gpu.Modes{Whole: true}
	for name, c := range map[string]struct {
		entries string
		want    gpu.Layout
	}{
		"no entries":               {`[]`, gpu.Layout{}},
		"modes default to whole":   {`[{}]`, gpu.Layout{h0: whole, h1: whole, a2: whole, l3: whole}},
		"by product":               {`[{select: {products: ["NVIDIA H100*"]}, modes: [whole, mig]}]`, gpu.Layout{h0: {Whole: true, MIG: h100}, h1: {Whole: true, MIG: h100}}},
		"by index":                 {`[{select: {indices: [2]}, modes: [mig]}]`, gpu.Layout{a2: {MIG: []string{"1g.6gb", "2g.12gb"}}}},
		"by UUID":                  {`[{select: {uuids: [` + string(h1) + `]}, modes: [mig]}]`, gpu.Layout{h1: {MIG: h100}}},
		"by two lists of one":      {`[{select: {indices: [0], products: ["*H100*"]}, modes: [mig]}]`, gpu.Layout{h0: {MIG: h100}, h1: {MIG: h100}}},
		"chosen profiles":          {`[{select: {indices: [0]}, modes: [mig], mig: {profiles: [3g.40gb, 1g.10gb]}}]`, gpu.Layout{h0: {MIG: []string{"1g.10gb", "3g.40gb"}}}},
		"a select before the rest": {`[{modes: [whole]}, {select: {indices: [0]}, modes: [mig]}]`, gpu.Layout{h0: {MIG: h100}, h1: whole, a2: whole, l3: whole}},
		"nothing matches":          {`[{select: {indices: [7], products: ["NVIDIA B200"]}, modes: [mig]}]`, gpu.Layout{}},
		"time-sliced": {
			`[{select: {indices: [0]}, modes: [whole, timeslice, mig], timeSlice: {replicas: 4, shareName: gpu-shared, interval: Long, resourceName: nvidia.com/gpu.shared}}]`,
			gpu.Layout{h0: {Whole: true, MIG: h100, OneShare: true, TimeSlice: &gpu.Replicas{
				Count: 4, ShareName: "gpu-shared", Resource: "nvidia.com/gpu.shared", Interval: gpu.IntervalLong,
			}}},
		},
		"time-sliced by default": {
			`[{select: {indices: [3]}, modes: [timeslice], timeSlice: {replicas: 10}, failRequestsGreaterThanOne: false}]`,
			gpu.Layout{l3: {TimeSlice: &gpu.Replicas{Count: 10, Interval: gpu.IntervalDefault}}},
		},
		"pre-created MIG devices": {
			`[{mig: {replicas: {1g.10gb: 7, 1g.6gb: 2, 2g.12gb: 1}}}]`, gpu.Layout{
				h0: {Whole: true, MIGReplicas: map[string]int{"1g.10gb": 7}, OneShare: true},
				h1: {Whole: true, MIGReplicas: map[string]int{"1g.10gb": 7}, OneShare: true},
				a2: {Whole: true, MIGReplicas: map[string]int{"1g.6gb": 2}, OneShare: true}, l3: whole,
			},
		},
		"one claim at a time": {`[{select: {indices: [0]}, modes: [mig], mig: {replicas: {1g.10gb: 1}}}]`, gpu.Layout{h0: {MIG: h100}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refused, err := nodeconfig.Resolve(config(t, c.entries), &gpu.Node{GPUs: gpus()})
			require.NoError(t, err)
			assert.Empty(t, refused)
			assert.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

// TestResolve_SharedMIGDevices_ResourceNames: users see the names in the configuration.
func TestResolve_SharedMIGDevices_ResourceNames(t *testing.T) {
	t.Parallel()
	const entries = "gpus: [{mig: {replicas: {1g.10gb: 2, 3g.40gb: 2}, resourceNames: {1g.10gb: nvidia.com/small}}}]"
	const file = "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, rename: small, replicas: 2}]}}"
	header := "apiVersion: gpu.prism.dev/v1alpha1\nkind: NodeConfig\n"
	for text, want := range map[string]map[string]string{
		header + entries: {"1g.10gb": "nvidia.com/small"},
		header + "flags: {migStrategy: single}\n" + entries:  {"1g.10gb": "nvidia.com/small", "3g.40gb": "nvidia.com/gpu"},
		header + "flags: {migStrategy: none}\n" + entries:    {"1g.10gb": "nvidia.com/small"},
		"version: v1\nflags: {migStrategy: mixed}\n" + file:  {"1g.10gb": "nvidia.com/small"},
		"version: v1\nflags: {migStrategy: single}\n" + file: {"1g.10gb": "nvidia.com/gpu"},
		"version: v1\n" + file:                               {},
	} {
		c, _, err := nodeconfig.Parse([]byte(text), "it")
		require.NoError(t, err, text)
		layout, _, err := nodeconfig.Resolve(c, &gpu.Node{GPUs: gpus()})
		require.NoError(t, err, text)
		assert.Equal(t, want, layout[h0].MIGResources, text)
	}
}

// Without a config every GPU is advertised whole.
func TestResolve_NoConfig_NoLayout(t *testing.T) {
	t.Parallel()
	layout, refused, err := nodeconfig.Resolve(nil, &gpu.Node{GPUs: gpus()})
	require.NoError(t, err)
	assert.Nil(t, layout)
	assert.Nil(t, refused)
}

func TestResolve_NotSupported_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries, want string
		// resolved are the GPUs that are not affected; the others are refused.
		resolved []int
		refused  int
	}{
		"a profile the GPU lacks": {
			`[{select: {indices: [0, 1, 2]}, modes: [mig], mig: {profiles: [1g.10gb]}}]`,
			"NodeConfig: gpus[0].mig.profiles[0]: NVIDIA A30 has no profile 1g.10gb; it has: 1g.6gb, 2g.12gb", []int{0, 1}, 1,
		},
		"MIG on a GPU without it": {
			`[{modes: [whole, mig]}]`,
			"NodeConfig: gpus[0].modes[1]: NVIDIA L40S has no MIG; remove mode mig, or give such GPUs an entry of their own without it", []int{0, 1, 2}, 1,
		},
		"two selects": {
			`[{select: {indices: [1]}}, {select: {products: ["*L40S"]}}, {select: {products: ["*H100*"]}}]`,
			"NodeConfig: gpus[2].select: selects GPU 1 (NVIDIA H100 80GB HBM3, GPU-11111111-0000-0000-0000-000000000000), as does gpus[0]; " +
				"a GPU has one entry: narrow one of them", []int{0, 3}, 1,
		},
		"MIG devices for several claims": {
			`[{select: {indices: [0]}, modes: [mig], mig: {replicas: {1g.10gb: 2}}}]`,
			"NodeConfig: gpus[0].mig.replicas[1g.10gb]: a MIG device that is made for a claim is exclusive to it, and replicas are for pre-created " +
				"MIG devices; remove it, or mode mig", []int{0}, 0,
		},
		"time-sliced twice": {
			`[{select: {indices: [1]}, modes: [timeslice], timeSlice: {replicas: 2}}, {select: {uuids: [` + string(h1) + `]}, modes: [timeslice], ` +
				`timeSlice: {replicas: 3}}, {modes: [timeslice], timeSlice: {replicas: 5}}]`,
			"NodeConfig: gpus[1].select: selects GPU 1 (NVIDIA H100 80GB HBM3, GPU-11111111-0000-0000-0000-000000000000), as does gpus[0]; " +
				"a GPU has one entry: narrow one of them", []int{0, 2, 3}, 1,
		},
		"an index in two entries": {
			`[{select: {indices: [0, 1]}}, {select: {indices: [1, 2]}}, {}]`,
			"NodeConfig: gpus[1].select: selects GPU 1 (NVIDIA H100 80GB HBM3, GPU-11111111-0000-0000-0000-000000000000), as does gpus[0]; " +
				"a GPU has one entry: narrow one of them", []int{0, 2, 3}, 1,
		},
		"one claim time-sliced": {
			`[{select: {indices: [1, 2]}, modes: [timeslice], timeSlice: {replicas: 1}}, {modes: [whole]}]`,
			"NodeConfig: gpus[0].timeSlice.replicas: 1 is out of range; allowed: 2 to 2147483647", []int{0, 3}, 2,
		},
		"a MIG device for no claim": {
			`[{select: {indices: [0]}, mig: {replicas: {1g.10gb: 0, 2g.20gb: 2}}}, {modes: [whole]}]`,
			"NodeConfig: gpus[0].mig.replicas[1g.10gb]: 0 is out of range; allowed: 1 to 2147483647", []int{1, 2, 3}, 1,
		},
		"too many shares": {
			`[{select: {products: ["*L40S"]}, modes: [whole, mps], mps: {replicas: 61}}, {modes: [whole]}]`,
			"NodeConfig: gpus[0].mps.replicas: 61 is out of range; allowed: 1 to 60", []int{0, 1, 2}, 1,
		},
		"replicas for GPUs of other nodes": {
			`[{select: {products: ["*B200"]}, modes: [timeslice], timeSlice: {replicas: -1}}, {modes: [whole]}]`,
			"NodeConfig: gpus[0].timeSlice.replicas: -1 is out of range; allowed: 2 to 2147483647", []int{0, 1, 2, 3}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layout, refused, err := nodeconfig.Resolve(config(t, c.entries), &gpu.Node{GPUs: gpus()})
			var resolved []int
			for i, g := range gpus() {
				if _, ok := layout[g.UUID]; ok {
					resolved = append(resolved, i)
					assert.NotContains(t, refused, g.UUID)
				}
			}
			assert.Len(t, refused, c.refused)
			assert.Equal(t, c.resolved, resolved)
			require.EqualError(t, err, c.want)
			var problems *v1alpha1.Problems
			assert.ErrorAs(t, err, &problems)
		})
	}
}

// Problems that several GPUs have are reported once, and all of them together.
func TestResolve_SameProblemOfSeveralGPUs_ReportedOnce(t *testing.T) {
	t.Parallel()
	_, _, err := nodeconfig.Resolve(config(t, `[{modes: [mig], mig: {profiles: [7g.80gb]}}]`), &gpu.Node{GPUs: gpus()})
	require.EqualError(t, err, "NodeConfig: gpus[0].mig.profiles[0]: NVIDIA H100 80GB HBM3 has no profile 7g.80gb; it has: 1g.10gb, 2g.20gb, 3g.40gb; "+
		"gpus[0].mig.profiles[0]: NVIDIA A30 has no profile 7g.80gb; it has: 1g.6gb, 2g.12gb; "+
		"gpus[0].modes[0]: NVIDIA L40S has no MIG; remove mode mig, or give such GPUs an entry of their own without it")
}

func TestResolve_DriverReportsNoProfiles_Refused(t *testing.T) {
	t.Parallel()
	node := gpus()[:1]
	node[0].MIG = nil
	_, _, err := nodeconfig.Resolve(config(t, `[`+all+`]`), &gpu.Node{GPUs: node})
	require.EqualError(t, err, "NodeConfig: gpus[0].modes[1]: the driver does not report the MIG profiles of NVIDIA H100 80GB HBM3; "+
		"update the NVIDIA driver or remove mode mig")
}

// A profile with all media engines is advertised only if it is named: the counters do not represent its exclusions.
func TestResolve_AllMediaProfile_OnlyWhereNamed(t *testing.T) {
	t.Parallel()
	blackwell := gpu.GPU{UUID: h0, Product: gpu.Product{Name: "NVIDIA RTX PRO 6000", MIGCapable: true}, MIG: &gpu.MIG{}}
	for i, name := range []string{"1g.24gb", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb-me"} {
		blackwell.MIG.Profiles = append(blackwell.MIG.Profiles, gpu.MIGProfile{ID: i, Name: name})
	}
	for entries, want := range map[string][]string{
		`[{modes: [mig]}]`: {"1g.24gb", "1g.24gb+me", "1g.24gb-me"},
		`[{modes: [mig], mig: {profiles: [1g.24gb-me, 1g.24gb+me.all]}}]`: {"1g.24gb+me.all", "1g.24gb-me"},
	} {
		layout, _, err := nodeconfig.Resolve(config(t, entries), &gpu.Node{GPUs: []gpu.GPU{blackwell}})
		require.NoError(t, err)
		assert.Equal(t, want, layout[h0].MIG, entries)
	}
}
