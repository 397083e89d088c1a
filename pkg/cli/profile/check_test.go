package profile_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// put adds an object of the cluster from YAML, by its path.
func (s *server) put(t *testing.T, path, object string) {
	t.Helper()
	var decoded map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(object), &decoded))
	s.objects[path] = decoded
}

// trainer adds a pod that waits for its claim.
func (s *server) trainer(t *testing.T) {
	t.Helper()
	s.put(t, "/api/v1/namespaces/team/pods/train", `
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: team}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
  containers:
  - {name: main, image: img, command: [python3, "a\e[2Jb"], resources: {claims: [{name: gpu}]}}
status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: train-gpu-x}]}
`)
	s.put(t, "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/train-gpu-x", `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train-gpu-x, namespace: team}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.prism.dev}}]}}
`)
	s.put(t, "/apis/resource.k8s.io/v1/deviceclasses/gpu.prism.dev", `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.prism.dev}
spec:
  config:
  - opaque:
      driver: gpu.prism.dev
      parameters: {apiVersion: gpu.prism.dev/v1alpha1, kind: ProfilerConfig, match: {regex: ^python}}
`)
	s.put(t, apiService, "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, spec: {service: {namespace: prism, name: prism-controller}}}")
	// Any user may create one with its labels in a namespace.
	s.put(t, "/api/v1/configmaps", `
apiVersion: v1
kind: ConfigMapList
items: [{metadata: {name: planted, namespace: evil}, data: {profiler.yaml: "policy: {maxRetention: 1h}"}}]
`)
	s.put(t, "/api/v1/namespaces/prism/configmaps", `
apiVersion: v1
kind: ConfigMapList
items: [{metadata: {name: p, namespace: prism}, data: {profiler.yaml: "policy: {maxRetention: 24h}"}}]
`)
}

// apiService is the path of the APIService of the API of reports.
const apiService = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.profiles.gpu.prism.dev"

func TestCheck_PodPending_ReadsWhatItNeeds(t *testing.T) {
	s := newServer(t)
	s.trainer(t)
	s.add("a-1", nil)
	out, errOut, err := s.run(t.Context(), t, "check", "train")
	require.NoError(t, err)
	assert.Empty(t, errOut)
	assert.Contains(t, out, "Pod team/train\nContainer main\n  profiled: yes, because processes that match ^python are profiled, and the command of the "+
		`container qualifies: python3 a\x1b[2Jb`+"\n  reports Ready: 1\n  claim gpu, ResourceClaim train-gpu-x\n    ProfilerConfig, merged from DeviceClass gpu.prism.dev:\n")
	assert.Contains(t, out, "retention: 24h0m0s\n", "the limit of the policy")
	assert.NotContains(t, out, "\x1b")
	out, _, err = s.run(t.Context(), t, "check", "train", "-o", "json")
	require.NoError(t, err)
	var result struct {
		Containers []struct{ Profiled string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	assert.Equal(t, "yes", result.Containers[0].Profiled)
	out, _, err = s.run(t.Context(), t, "check", "train", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "profiled: \"yes\"\n")
}

// TestCheck_UserMayReadLittle_SaysWhatIsMissing: a user of a namespace can read neither classes nor the chart's ConfigMap.
func TestCheck_UserMayReadLittle_SaysWhatIsMissing(t *testing.T) {
	s := newServer(t)
	s.trainer(t)
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/namespaces/team/") && !strings.HasPrefix(r.URL.Path, apis) {
			return false
		}
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: "+r.URL.Path)
		return true
	}
	out, errOut, err := s.run(t.Context(), t, "check", "train")
	require.NoError(t, err)
	assert.Contains(t, errOut, "Warning: listing reports in namespace team: the API server denied access: ")
	assert.Contains(t, out, "profiled: depends, because DeviceClass gpu.prism.dev cannot be read: forbidden: /apis/resource.k8s.io/v1/deviceclasses/"+
		"gpu.prism.dev; an administrator can allow it; check again when the claim is allocated")
	assert.Contains(t, out, "Note: policy and defaults of the cluster are not visible to you; ")
}

func TestCheck_NoProfiler_SaysSo(t *testing.T) {
	s := newServer(t)
	s.trainer(t)
	delete(s.objects, apiService)
	s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, apis) {
			http.NotFound(w, r)
			return true
		}
		return false
	}
	out, errOut, err := s.run(t.Context(), t, "check", "train")
	require.NoError(t, err)
	assert.Contains(t, out, "profiled: no, because the chart of Prism is installed without profiler.tools; an administrator can set it")
	assert.Contains(t, errOut, "Warning: listing reports in namespace team: the cluster does not serve reports")
	_, _, err = s.run(t.Context(), t, "check", "none")
	require.EqualError(t, err, "reading pod none of namespace team: it does not exist")
}
