package gpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const podTemplate = `template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}], resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}}`

func TestParseManifest_AllKinds_PodsClaimsTemplates(t *testing.T) {
	t.Parallel()
	m, err := parseManifest([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: other, uid: x}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
---
# comments alone are no object
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {replicas: 3, selector: {}, `+podTemplate+`}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s}
spec: {selector: {}, serviceName: s, `+podTemplate+`}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds}
spec: {selector: {}, `+podTemplate+`}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: job-}
spec: {parallelism: 2, `+strings.Replace(podTemplate, "labels: {app: x}", "generateName: job-", 1)+`}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.prism.dev}}]}}
status: {allocation: {}}
---
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: one}
  spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.prism.dev}}]}}}
- {apiVersion: v1, kind: Service, metadata: {name: web}}
- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}
`), "ml")
	require.NoError(t, err)
	got := map[string]int32{}
	for _, w := range m.workloads {
		got[w.kind+" "+w.pod.Namespace+"/"+w.pod.Name] = w.replicas
		assert.Empty(t, w.pod.UID)
		assert.Empty(t, w.pod.Spec.NodeName)
		assert.Equal(t, corev1.PodPending, w.pod.Status.Phase)
		assert.Equal(t, w.kind == "DaemonSet", len(w.pod.Spec.Tolerations) > 0)
	}
	assert.Equal(t, map[string]int32{"Pod other/p": 1, "Deployment ml/d": 3, "StatefulSet ml/s": 1, "DaemonSet ml/ds": 1, "Job ml/job-": 2}, got)
	require.Len(t, m.claims, 1)
	assert.Equal(t, "ml", m.claims[0].Namespace)
	assert.Nil(t, m.claims[0].Status.Allocation)
	assert.Contains(t, m.templates, types.NamespacedName{Namespace: "ml", Name: "one"})
	assert.Equal(t, []string{"Service", "Widget"}, m.ignored)
}

func TestParseManifest_BadInput_OneSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "found no object; supported kinds: " + manifestKinds,
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}": "found Service; supported kinds: " + manifestKinds,
		"a: [":      "reading YAML: ",
		"hello":     "reading an object: ",
		"kind: Pod": "reading Pod: ",
		"apiVersion: v1\nkind: Pod\nspec: {containers: []}":                                                   "reading Pod: metadata.name: required",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {resourceClaim: []}":                           `reading Pod: strict decoding error: unknown field "spec.resourceClaim"`,
		"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}":                       "resource.k8s.io/v1beta1 ResourceClaim is not supported; write it as resource.k8s.io/v1",
		"apiVersion: resource.k8s.io/v9\nkind: ResourceClaim\nmetadata: {name: a}":                            "resource.k8s.io/v9 ResourceClaim is not supported; write it as resource.k8s.io/v1",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 1}}]": "reading Pod: ",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {\"a\\u001b[2Jb\": 1}":                         `unknown field "spec.a\x1b[2Jb"`,
	} {
		_, err := parseManifest([]byte(text), "ml")
		if assert.ErrorContains(t, err, want, text) {
			assert.NotContains(t, err.Error(), "\n", text)
			assert.NotContains(t, err.Error(), "\x1b", text)
		}
	}
}

func TestParseManifest_DemoSpecs_AllReadable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../demo/specs/*/pod.yaml")
	require.NoError(t, err)
	require.Greater(t, len(files), 5)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		m, err := parseManifest(data, "default")
		if assert.NoError(t, err, file) {
			assert.NotEmpty(t, m.workloads, file)
		}
	}
}
