package labels

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

var update = flag.Bool("update", false, "write the golden files again")

const driver = "gpu.prism.dev"

// published reads the ResourceSlices of a node as the plugin publishes them.
func published(t *testing.T, name string) []*resourceapi.ResourceSlice {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../plugin/publish/testdata", name+".yaml"))
	require.NoError(t, err)
	var all []*resourceapi.ResourceSlice
	for _, doc := range bytes.Split(raw, []byte("\n---\n")) {
		slice := &resourceapi.ResourceSlice{}
		require.NoError(t, yaml.UnmarshalStrict(doc, slice))
		all = append(all, slice)
	}
	return all
}

func factsOf(slices []*resourceapi.ResourceSlice) []*Facts {
	var all []*Facts
	for _, slice := range slices {
		all = append(all, FactsOf(slice, driver))
	}
	return all
}

// TestPlan_PublishedNodes_Golden: the labels of each model and layout that the plugin publishes, with and without the labels of the device
// plugin.
func TestPlan_PublishedNodes_Golden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../plugin/publish/testdata/*.yaml")
	require.NoError(t, err)
	golden := map[string]map[string]map[string]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		facts := factsOf(published(t, name))
		labels, complete := Plan(facts, Options{})
		require.True(t, complete, name)
		all, complete := Plan(facts, Options{Present: true, DevicePlugin: true})
		require.True(t, complete, name)
		more := map[string]string{}
		for key, value := range all {
			assert.Contains(t, keys, key)
			assert.Empty(t, validation.IsValidLabelValue(value), "%s of %s", key, name)
			if labels[key] != value {
				more[key] = value
			}
		}
		golden[name] = map[string]map[string]string{"labels": labels, "presentAndDevicePlugin": more}
	}
	got, err := yaml.Marshal(golden)
	require.NoError(t, err)
	const path = "testdata/labels.yaml"
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./pkg/controller/labels -update writes it")
	assert.Empty(t, cmp.Diff(string(want), string(got)), "if that is wanted: go test ./pkg/controller/labels -update")
}

// gpus returns the facts of a node with one complete pool.
func gpus(all ...GPUFacts) []*Facts {
	for i := range all {
		all[i].UUID = "GPU-" + string(rune('a'+i))
	}
	return []*Facts{{Pool: "n1", Generation: 1, Count: 1, GPUs: all}}
}

func whole(product, compute string, mib int64) GPUFacts {
	return GPUFacts{
		Product: product, Compute: compute, Driver: "580.95.5", CUDA: "13.0.0", Memory: mib * bytesPerMiB, Families: []Family{{Type: gpu.TypeGPU}},
	}
}

func labelsOf(t *testing.T, facts []*Facts, o Options) map[string]string {
	t.Helper()
	labels, complete := Plan(facts, o)
	require.True(t, complete)
	return labels
}

// TestPlan_UnequalGPUs_CountAlone: no label about the model is right for all GPUs. The versions are of the node.
func TestPlan_UnequalGPUs_CountAlone(t *testing.T) {
	t.Parallel()
	t4 := whole("Tesla T4", "7.5.0", 15360)
	for name, other := range map[string]GPUFacts{
		"product": whole("NVIDIA L4", "7.5.0", 15360), "memory": whole("Tesla T4", "7.5.0", 16384), "compute capability": whole("Tesla T4", "8.9.0", 15360),
	} {
		assert.Equal(t, map[string]string{
			keyCount: "3", keyPresent: "true", keyDriverMajor: "580", keyDriverMinor: "95", keyRuntimeMajor: "13", keyRuntimeMinor: "0", keyRuntimeFull: "13.0",
		}, labelsOf(t, gpus(t4, t4, other), Options{DevicePlugin: true, Present: true}), name)
	}
}

// TestPlan_UnknownValues_LeftOut: what the driver does not report is no label, and no difference between GPUs.
func TestPlan_UnknownValues_LeftOut(t *testing.T) {
	t.Parallel()
	slices := published(t, "t4")
	for name := range slices[0].Spec.Devices[0].Attributes {
		value := slices[0].Spec.Devices[0].Attributes[name]
		switch {
		case name == "productName":
			value.StringValue = new("unknown")
		case value.VersionValue != nil:
			value.VersionValue = new("0.0.0")
		}
		for i := range slices[0].Spec.Devices {
			slices[0].Spec.Devices[i].Attributes[name] = value
			delete(slices[0].Spec.Devices[i].Capacity, "memory")
		}
	}
	for i := range slices[0].Spec.Devices {
		slices[0].Spec.Devices[i].Attributes["parentUUID"] = resourceapi.DeviceAttribute{StringValue: new("GPU-" + string(rune('a'+i)))}
	}
	assert.Equal(t, map[string]string{keyCount: "4"}, labelsOf(t, factsOf(slices), Options{}))

	known := whole("Tesla T4", "7.5.0", 15360)
	unknown := GPUFacts{Families: known.Families, Driver: known.Driver, CUDA: known.CUDA}
	assert.Equal(t, labelsOf(t, gpus(known, known), Options{}), labelsOf(t, gpus(unknown, known), Options{}))
	differs := known
	differs.Driver = "590.1.0"
	assert.NotContains(t, labelsOf(t, gpus(known, differs), Options{}), keyDriverMajor)
	assert.Contains(t, labelsOf(t, gpus(known, differs), Options{}), keyRuntimeMajor)
}

// TestPlan_IncompletePool_Kept: only the newest generation of a pool counts, with all its ResourceSlices.
func TestPlan_IncompletePool_Kept(t *testing.T) {
	t.Parallel()
	t4 := whole("Tesla T4", "7.5.0", 15360)
	pool := func(generation, count int64, uuids ...string) *Facts {
		facts := &Facts{Pool: "n1", Generation: generation, Count: count}
		for _, uuid := range uuids {
			g := t4
			g.UUID = uuid
			facts.GPUs = append(facts.GPUs, g)
		}
		return facts
	}
	for name, c := range map[string]struct {
		slices []*Facts
		count  string // empty: incomplete
	}{
		"one":                      {[]*Facts{pool(1, 1, "a")}, "1"},
		"older generation ignored": {[]*Facts{pool(1, 1, "a", "b"), pool(2, 1, "a")}, "1"},
		"first of two":             {[]*Facts{pool(1, 2, "a")}, ""},
		"both":                     {[]*Facts{pool(1, 2, "a"), pool(1, 2, "b", "a")}, "2"},
		"newer generation begins":  {[]*Facts{pool(1, 1, "a"), pool(2, 2, "a")}, ""},
		"more than announced":      {[]*Facts{pool(1, 1, "a"), pool(1, 1, "b")}, ""},
		"other pool incomplete":    {[]*Facts{pool(1, 1, "a"), {Pool: "n1/monitor", Generation: 1, Count: 2}}, ""},
	} {
		labels, complete := Plan(c.slices, Options{})
		assert.Equal(t, c.count != "", complete, name)
		assert.Equal(t, c.count, labels[keyCount], name)
	}
	for _, none := range [][]*Facts{nil, {{Pool: "n1", Generation: 1, Count: 1}}} {
		assert.Empty(t, labelsOf(t, none, Options{Present: true}))
	}
}

// TestPlan_Models_FamilyAndMIG by compute capability, as gpu-feature-discovery spells them.
func TestPlan_Models_FamilyAndMIG(t *testing.T) {
	t.Parallel()
	for product, c := range map[string]struct{ compute, family, mig string }{
		"Tesla P100-PCIE-16GB": {"6.0.0", "pascal", "false"}, "Tesla V100-SXM2-32GB": {"7.0.0", "volta", "false"}, "Jetson Xavier": {"7.2.0", "volta", "false"},
		"Quadro RTX 6000": {"7.5.0", "turing", "false"}, "NVIDIA A100-PCIE-40GB": {"8.0.0", "ampere", "true"}, "NVIDIA A10": {"8.6.0", "ampere", "false"},
		"Orin": {"8.7.0", "ampere", "false"}, "NVIDIA L4": {"8.9.0", "ada-lovelace", "false"}, "NVIDIA GH200 480GB": {"9.0.0", "hopper", "true"},
		"NVIDIA B300": {"10.3.0", "blackwell", "true"}, "NVIDIA GeForce RTX 5090": {"12.0.0", "blackwell", "false"},
		"NVIDIA RTX PRO 6000 Blackwell Server Edition": {"12.0.0", "blackwell", "true"}, "NVIDIA GB10": {"12.1.0", "blackwell", "false"},
		"NVIDIA Thor": {"11.0.0", "undefined", ""}, "NVIDIA R200": {"13.0.0", "rubin", ""},
	} {
		labels := labelsOf(t, gpus(whole(product, c.compute, 1024)), Options{})
		assert.Equal(t, []string{c.family, c.mig}, []string{labels[keyFamily], labels[keyMIGCapable]}, product)
	}
	partitioned := whole("NVIDIA R200", "13.0.0", 1024)
	partitioned.Families = []Family{{Type: gpu.TypeMIG}}
	assert.Equal(t, "true", labelsOf(t, gpus(partitioned), Options{})[keyMIGCapable])
}

// TestPlan_Products_ValidValues: every name that a driver reports becomes a valid label value.
func TestPlan_Products_ValidValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("NVIDIA ", 9) + "X"
	for product, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB": "NVIDIA-A100-SXM4-40GB", "Quadro RTX 6000/8000": "Quadro-RTX-6000-8000", "NVIDIA RTX™ (rev. 2)": "NVIDIA-RTX---rev.-2",
		"( )": "", long: strings.Repeat("NVIDIA-", 8) + "NVIDIA", "GPU ÄÖ": "GPU",
	} {
		labels := labelsOf(t, gpus(whole(product, "9.0.0", 1)), Options{})
		assert.Equal(t, want, labels[keyProduct], product)
		assert.Empty(t, validation.IsValidLabelValue(labels[keyProduct]))
	}
}

// TestPlan_SharedGPUs_AsDevicePlugin: replicas, strategy and suffix if all GPUs are shared alike.
func TestPlan_SharedGPUs_AsDevicePlugin(t *testing.T) {
	t.Parallel()
	const product = "Tesla-T4"
	with := func(families ...Family) GPUFacts {
		g := whole("Tesla T4", "7.5.0", 15360)
		g.Families = families
		return g
	}
	exclusive, mig := Family{Type: gpu.TypeGPU}, Family{Type: gpu.TypeMIG}
	mps, slow := Family{Type: gpu.TypeMPS, Replicas: 4}, Family{Type: gpu.TypeTimeSlice, Replicas: 10}
	renamed := Family{Type: gpu.TypeTimeSlice, Replicas: 10, Renamed: true}
	for name, c := range map[string]struct {
		gpus []GPUFacts
		want []string // product, replicas, strategy, MIG strategy
	}{
		"whole":                {[]GPUFacts{with(exclusive), with(exclusive)}, []string{product, "1", "none", ""}},
		"MPS":                  {[]GPUFacts{with(mps), with(mps)}, []string{product + "-SHARED", "4", "mps", ""}},
		"time-slicing":         {[]GPUFacts{with(slow)}, []string{product + "-SHARED", "10", "time-slicing", ""}},
		"own name":             {[]GPUFacts{with(renamed)}, []string{product, "10", "time-slicing", ""}},
		"one share":            {[]GPUFacts{with(Family{Type: gpu.TypeMPS, Replicas: 1})}, []string{product, "1", "mps", ""}},
		"whole too":            {[]GPUFacts{with(renamed, exclusive)}, []string{product, "1", "none", ""}},
		"two kinds":            {[]GPUFacts{with(mps, slow)}, []string{product, "", "", ""}},
		"differ":               {[]GPUFacts{with(mps), with(exclusive)}, []string{product, "", "", ""}},
		"MIG":                  {[]GPUFacts{with(mig)}, []string{product, "0", "none", "mixed"}},
		"MIG on one":           {[]GPUFacts{with(exclusive), with(mig)}, []string{product, "", "", "mixed"}},
		"MIG beside whole GPU": {[]GPUFacts{with(exclusive, mig)}, []string{product, "1", "none", "mixed"}},
	} {
		labels := labelsOf(t, gpus(c.gpus...), Options{DevicePlugin: true})
		assert.Equal(t, c.want, []string{labels[keyProduct], labels[keyReplicas], labels[keySharing], labels[keyStrategy]}, name)
		plain := labelsOf(t, gpus(c.gpus...), Options{})
		assert.Equal(t, product, plain[keyProduct], name)
		for _, key := range []string{keyReplicas, keySharing, keyStrategy, keyPresent} {
			assert.NotContains(t, plain, key, name)
		}
	}
	long := with(mps)
	long.Product = strings.Repeat("a", 64)
	assert.Equal(t, strings.Repeat("a", 56)+"-SHARED", labelsOf(t, gpus(long), Options{DevicePlugin: true})[keyProduct])
}
