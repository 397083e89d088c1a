package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const update = "it is out of date: go generate ./hack/reference"

func rootOf(t *testing.T) string {
	t.Helper()
	root, err := moduleRoot()
	require.NoError(t, err)
	return root
}

func TestPages_Committed_AreWhatIsGenerated(t *testing.T) {
	root := rootOf(t)
	generated := map[string]bool{}
	for _, p := range pages() {
		generated[p.name] = true
		want, err := p.write(root)
		require.NoError(t, err, p.name)
		got, err := os.ReadFile(filepath.Join(root, folder, p.name))
		require.NoError(t, err, update)
		assert.Equal(t, want, string(got), "%s: %s", p.name, update)
	}
	require.NoError(t, fs.WalkDir(os.DirFS(filepath.Join(root, folder)), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			assert.True(t, generated[path], "%s is not generated: remove it", path)
		}
		return err
	}))
}

// unset begins the part of a comment about a field that the defaulting code sets from another field.
var unset = regexp.MustCompile(`Unset: `)

func TestDefaults_DocComments_EqualDefaultingCode(t *testing.T) {
	root := rootOf(t)
	for _, k := range kinds() {
		fields, _, err := k.fields(root)
		require.NoError(t, err)
		set := k.defaults()
		each(fields, func(f *field) {
			documented := defaultIn(f.doc)
			if documented == "empty" {
				documented = `""`
			}
			if f.of.Kind() == reflect.Slice && documented != "" {
				documented = "[" + documented + "]"
			}
			if documented == "" && unset.MatchString(f.doc) {
				return
			}
			assert.Equal(t, set[f.path], documented, "%s %s: the doc comment names another default than the defaulting code", k.name, f.path)
		})
	}
}

func TestFields_NoDocComment_Refused(t *testing.T) {
	type undocumented struct {
		Known   string `json:"known"`
		Unknown string `json:"unknown"`
	}
	_, err := fieldsOf(reflect.TypeFor[undocumented](), "", comments{"undocumented.Known": "Known is documented."})
	require.EqualError(t, err, "field undocumented.Unknown has no doc comment")
}

// metricName matches the name of a metric in code.
var metricName = regexp.MustCompile(`"(prism_[a-z_]+)"`)

func TestMetrics_EveryNameInCode_IsOnThePage(t *testing.T) {
	root := rootOf(t)
	content, err := metricsPage(root)
	require.NoError(t, err)
	ofGPUs, err := gpuMetricsPage(root)
	require.NoError(t, err)
	content += ofGPUs
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, name := range metricName.FindAllSubmatch(source, -1) {
			found++
			assert.Contains(t, content, "| `"+string(name[1])+"` |", "%s has a metric that neither the registries gather nor pkg/exporter/metrics has", path)
		}
		return err
	}))
	assert.Greater(t, found, 10)
}

func TestVersions_Tests_Exist(t *testing.T) {
	root := rootOf(t)
	files, err := filepath.Glob(filepath.Join(root, "test/e2e/*_test.go"))
	require.NoError(t, err)
	var source strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		source.Write(content)
	}
	for _, c := range capabilities {
		for _, name := range append(c.tests, c.older...) {
			assert.Contains(t, source.String(), "\nfunc "+name+"(t *testing.T)", "%s: no such end-to-end test", c.feature)
		}
	}
	gates := regexp.MustCompile(`\{"(DRA[A-Za-z]+)", (\d+)\}`).FindAllStringSubmatch(source.String(), -1)
	require.NotEmpty(t, gates)
	for _, gate := range gates {
		found := false
		for _, c := range capabilities {
			if c.gate == gate[1] {
				found = true
				assert.Equal(t, "1."+gate[2], c.since, "%s: the end-to-end tests know another version", c.feature)
			}
		}
		assert.True(t, found, "the page lacks feature gate %s of the end-to-end tests", gate[1])
	}
}

func TestMigration_Values_AreInTheSchema(t *testing.T) {
	root := rootOf(t)
	values, err := foreignValues(root)
	require.NoError(t, err)
	schema, err := readSchema(root)
	require.NoError(t, err)
	for _, v := range values {
		top, _, _ := strings.Cut(v.Name, ".")
		at, ok := schema.at(top)
		assert.True(t, ok, "%s: values.schema.json refuses it before the chart can name its replacement", v.Name)
		if v.Accepted {
			_, ok = schema.at(v.Name)
			assert.True(t, ok, "%s is not a value of the chart", v.Name)
			continue
		}
		if below, found := schema.at(v.Name); found {
			at = below
		}
		assert.Nil(t, at.Type, "%s: values.schema.json limits a value that is refused anyhow", v.Name)
	}
}

// chartName matches the name of a chart value in a replacement.
var chartName = regexp.MustCompile("`([a-z][A-Za-z]*(?:\\.[A-Za-z]+)+|nvidiaCDIHook|kubeletRoot|deviceMetadata)`")

// TestMigration_DRADriver_NamesAreOfTheCharts: values that are the same, and replacements, are values of the chart, and other values are
// not.
func TestMigration_DRADriver_NamesAreOfTheCharts(t *testing.T) {
	schema, err := readSchema(rootOf(t))
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, v := range draValues {
		for _, name := range splitList(v.name) {
			assert.False(t, seen[name], "%s is there twice", name)
			seen[name] = true
			at, ok := schema.at(name)
			assert.Equal(t, v.same, ok && (at.Type != nil || at.Enum != nil), "%s", name)
		}
		for _, name := range chartName.FindAllStringSubmatch(v.here, -1) {
			_, ok := schema.at(name[1])
			assert.True(t, ok || strings.HasPrefix(name[1], "resource.k8s.io"), "%s: %s is not a value of the chart", v.name, name[1])
		}
	}
	// The top-level values of two versions of that chart.
	for name := range strings.FieldsSeq("nvidiaDriverRoot nvidiaCDIHookPath altProcDevices nameOverride fullnameOverride namespaceOverride selectorLabelsOverride " +
		"gpuResourcesEnabledOverride consumableShares allowDefaultNamespace resourceApiVersion imagePullSecrets image serviceAccount resources featureGates " +
		"logVerbosity webhook controller kubeletPlugin maskNvidiaDriverParams nvidiaCtkPath") {
		assert.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(full string) bool { return full == name || strings.HasPrefix(full, name+".") }), name)
	}
}
