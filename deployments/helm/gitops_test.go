package helm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// TestChartConfigCreate_Synchronised_EditsStay: the three-way patch of helm upgrade and kubectl apply keeps entries that people have added.
// Argo CD and Flux compare in the same way.
func TestChartConfigCreate_Synchronised_EditsStay(t *testing.T) {
	made := func(args ...string) *unstructured.Unstructured {
		object := parse(t, render(t, append([]string{"--set", "config.create=true"}, args...)...))["ConfigMap/prism-config"]
		require.NotNil(t, object)
		return object
	}
	first, next := made(), made("--set", "logVerbosity=4", "--set", "config.default=h100")
	assert.Equal(t, "keep", first.GetAnnotations()["helm.sh/resource-policy"], "edits outlive the release")
	there := first.DeepCopy()
	require.NoError(t, unstructured.SetNestedStringMap(there.Object, map[string]string{"h100": "kind: NodeConfig", "default": "mine"}, "data"))
	text := func(object *unstructured.Unstructured) []byte {
		raw, err := json.Marshal(object.Object)
		require.NoError(t, err)
		return raw
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(&corev1.ConfigMap{})
	require.NoError(t, err)
	patch, err := strategicpatch.CreateThreeWayMergePatch(text(first), text(next), text(there), meta, true)
	require.NoError(t, err)
	assert.JSONEq(t, "{}", string(patch))
}

// TestChartLookup_NoCluster_FoundNothing: a lookup finds nothing if a chart is rendered without a cluster, so objects that depend on a
// lookup are reset at each synchronisation. This applies to the certificates, and docs/admission.md documents it. Without a cluster the
// chart creates all classes of MIG profiles.
func TestChartLookup_NoCluster_FoundNothing(t *testing.T) {
	files, err := filepath.Glob("prism/templates/*")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		want := 0
		switch filepath.Base(file) {
		case "admission.yaml", "_helpers.tpl":
			want = 1
		case "reports.yaml":
			want = 2
		}
		assert.Equal(t, want, strings.Count(string(raw), "lookup "), file)
	}
}

// TestChartConfigDefault_EntriesOfTheCluster_Accepted: a ConfigMap that is edited in the cluster contains entries that the chart does not
// know.
func TestChartConfigDefault_EntriesOfTheCluster_Accepted(t *testing.T) {
	env := environment(t, parse(t, render(t, "--set", "config.create=true,config.default=h100")))
	assert.Equal(t, "h100", env["PRISM_NODE_CONFIG_NAME"])
}
