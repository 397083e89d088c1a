package helm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/controller/classes"
)

// profileValues name MIG profiles in all possible ways, and other values.
const profileValues = `
driverName: gpu.nvidia.com
controller: {enabled: false}
config:
  default: yaml
  map:
    yaml:
      apiVersion: gpu.prism.dev/v1alpha1
      kind: NodeConfig
      gpus:
      - {modes: [whole, mig], mig: {profiles: [1g.10gb, 1g.10gb+me, 1g.24gb-me]}}
      - {modes: [whole]}
      - {mig: {replicas: {2g.20gb: 2, "*": 3}}}
    text: |
      apiVersion: gpu.prism.dev/v1alpha1
      kind: NodeConfig
      gpus:
      - modes: [mig]
        mig: {profiles: [1g.10gb, 1g.24gb+me, 1g.24gb+me.all, 3g.40gb+gfx+me, 1g.10gb+no.me]}
    plugin: {version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}}
    wrong: {gpus: [text, {mig: text}, {mig: {profiles: [1, "a\nb"], replicas: [1]}}]}
    broken: "gpus: [}"
    list: "- gpus"
`

// named are the profiles in profileValues.
var named = []string{"1g.10gb", "1g.10gb+me", "1g.24gb-me", "2g.20gb", "1g.24gb+me", "1g.24gb+me.all", "3g.40gb+gfx+me", "1g.10gb+no.me"}

func profileFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(profileValues), 0o600))
	return file
}

// ofProfiles are the names of the rendered classes of MIG profiles.
func ofProfiles(rendered objects) []string {
	var found []string
	for _, object := range rendered {
		if object.GetKind() == "DeviceClass" && strings.HasPrefix(object.GetName(), "mig-") {
			found = append(found, object.GetName())
		}
	}
	return found
}

// TestChartProfileClasses_NoController_FromTheChart: the chart creates the same classes as the controller would for the profiles in the
// values.
func TestChartProfileClasses_NoController_FromTheChart(t *testing.T) {
	const driver = "gpu.nvidia.com"
	rendered := parse(t, render(t, "--values", profileFile(t)))
	var want []string
	for _, profile := range named {
		name, selector := classes.ProfileClass(driver, profile)
		want = append(want, name)
		require.Contains(t, rendered, "DeviceClass/"+name)
		selectors := dig(t, rendered["DeviceClass/"+name], "spec", "selectors").([]any)
		require.Len(t, selectors, 1)
		assert.Equal(t, selector, strings.Join(strings.Fields(selectors[0].(map[string]any)["cel"].(map[string]any)["expression"].(string)), " "))
		assert.NotContains(t, dig(t, rendered["DeviceClass/"+name], "spec"), "extendedResourceName")
	}
	assert.ElementsMatch(t, want, ofProfiles(rendered))
	for _, set := range []string{"controller.enabled=true", "deviceClasses.create=false"} {
		assert.Empty(t, ofProfiles(parse(t, render(t, "--values", profileFile(t), "--set", set))), set)
	}
	printed := notes(t, "--values", profileFile(t))
	for _, name := range want {
		assert.Contains(t, printed, " "+name)
	}
	assert.NotContains(t, printed, "not this release's")
}

// TestChartProfileClasses_OwnedByOthers_LeftOutAndNamed: Helm does not adopt objects that it does not own, so the chart omits such a class
// and NOTES name it.
func TestChartProfileClasses_OwnedByOthers_LeftOutAndNamed(t *testing.T) {
	const controllers, ours = "mig-1g-10gb.gpu.nvidia.com", "mig-2g-20gb.gpu.nvidia.com"
	all := parse(t, render(t, "--values", profileFile(t)))
	server := httptest.NewServer(cluster(all, map[string]map[string]any{
		controllers: {"labels": map[string]any{"app.kubernetes.io/managed-by": "prism-controller"}},
		ours: {"labels": map[string]any{"app.kubernetes.io/managed-by": "Helm"},
			"annotations": map[string]any{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}},
	}))
	defer server.Close()
	rendered, complaint, err := helm(t, "install", release, "prism", "--namespace", namespace, "--dry-run=server", "--disable-openapi-validation",
		"--kube-apiserver", server.URL, "--values", profileFile(t))
	require.NoError(t, err, complaint)
	manifest, printed, found := strings.Cut(rendered, "\nNOTES:\n")
	require.True(t, found)
	_, manifest, found = strings.Cut(manifest, "\nMANIFEST:\n")
	require.True(t, found)
	classes := ofProfiles(parse(t, manifest))
	assert.Len(t, classes, len(named)-1)
	assert.Contains(t, classes, ours)
	assert.NotContains(t, classes, controllers)
	assert.Contains(t, printed, "run helm upgrade again, and the chart creates them:\n\n  "+controllers+"\n")
	assert.NotContains(t, printed, "\n  "+ours)
}

// cluster is an API server that knows the kinds of these objects, and contains DeviceClasses with this metadata.
func cluster(known objects, classes map[string]map[string]any) http.Handler {
	answers := map[string]any{
		"/version": map[string]any{"major": "1", "minor": "37", "gitVersion": "v" + kubernetes},
		"/api":     map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
	}
	kinds := map[string][]map[string]any{}
	for _, object := range known {
		resource := strings.ToLower(object.GetKind())
		switch {
		case strings.HasSuffix(resource, "y"):
			resource = strings.TrimSuffix(resource, "y") + "ies"
		case strings.HasSuffix(resource, "s"):
			resource += "es"
		default:
			resource += "s"
		}
		kinds[object.GetAPIVersion()] = append(kinds[object.GetAPIVersion()], map[string]any{
			"name": resource, "kind": object.GetKind(), "namespaced": object.GetNamespace() != "", "verbs": []string{"get"}})
	}
	var groups []any
	for version, resources := range kinds {
		path := "/api/" + version
		if group, name, named := strings.Cut(version, "/"); named {
			path = "/apis/" + version
			one := map[string]any{"groupVersion": version, "version": name}
			groups = append(groups, map[string]any{"name": group, "versions": []any{one}, "preferredVersion": one})
		}
		answers[path] = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
	}
	answers["/apis"] = map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	for name, metadata := range classes {
		metadata["name"] = name
		answers["/apis/resource.k8s.io/v1/deviceclasses/"+name] = map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			object = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		}
		_ = json.NewEncoder(w).Encode(object)
	})
}
