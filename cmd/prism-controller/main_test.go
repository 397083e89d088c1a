package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/controller/admission"
	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/controller/reports"
)

// TestWire_AdmissionOff_ReportsServed: the flags of the chart decide which requests a replica answers on the admission port.
func TestWire_AdmissionOff_ReportsServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags              []string
		admission, reports bool
	}{
		"both":           {[]string{"--admission-certificate=/c", "--reports-certificate=/r"}, true, true},
		"admission off":  {[]string{"--admission-certificate=/c", "--reports-certificate=/r", "--admission-webhook=false", "--device-classes=false"}, false, true},
		"without a tool": {[]string{"--admission-certificate=/c"}, true, false},
		"none":           {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := config.LoadController(append([]string{
				"--kubeconfig=" + kubeconfig(t), "--namespace=ns", "--metrics-endpoint=0", "--probe-endpoint=0", "--plugin-selector=app=p", "--kube-api-qps=12", "--kube-api-burst=34",
			}, c.flags...), func(string) string { return "" })
			require.NoError(t, err)
			// The watches of DeviceClasses register metrics, which a process can do only once.
			cfg.DeviceClasses = false
			m, err := wire(t.Context(), cfg)
			require.NoError(t, err)
			assert.Equal(t, []any{float32(12), 34}, []any{m.GetConfig().QPS, m.GetConfig().Burst})
			server := m.GetWebhookServer()
			answers := func(path string) bool {
				if server.WebhookMux() == nil {
					return false // nothing was registered
				}
				_, pattern := server.WebhookMux().Handler(httptest.NewRequest(http.MethodGet, path, nil))
				return pattern != ""
			}
			assert.Equal(t, c.admission, answers(admission.Path), "admission")
			assert.Equal(t, c.reports, answers(reports.Path+"/namespaces/ns/reports"), "reports")
		})
	}
}

// TestWire_NodeLabels_MetricServed: only with labels the process has their metric, and reads Nodes.
func TestWire_NodeLabels_MetricServed(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{false, true} {
		cfg, err := config.LoadController([]string{
			"--kubeconfig=" + kubeconfig(t), "--namespace=ns", "--metrics-endpoint=0", "--probe-endpoint=0", "--owner-role=prism-controller",
		}, func(string) string { return "" })
		require.NoError(t, err)
		cfg.DeviceClasses, cfg.NodeLabels.Enabled = false, enabled // as above
		_, err = wire(t.Context(), cfg)
		require.NoError(t, err)
		families, err := metrics.Registry.Gather()
		require.NoError(t, err)
		assert.Equal(t, enabled, slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "prism_controller_node_label_conflicts" }))
	}
}

// discovery returns the discovery answer of an API server that serves every kind of the controller's scheme.
func discovery(t *testing.T) map[string]any {
	t.Helper()
	scheme, err := classes.Scheme()
	require.NoError(t, err)
	answers := map[string]any{"/api": metav1.APIVersions{Versions: []string{"v1"}}}
	groups := metav1.APIGroupList{}
	for _, version := range scheme.PrioritizedVersionsAllGroups() {
		resources := metav1.APIResourceList{GroupVersion: version.String()}
		for kind := range scheme.KnownTypes(version) {
			plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			resources.APIResources = append(resources.APIResources, metav1.APIResource{Name: plural.Resource, Kind: kind, Namespaced: kind == "Pod" || kind == "Lease"})
		}
		if version.Group == "" {
			answers["/api/"+version.Version] = resources
			continue
		}
		answers["/apis/"+version.String()] = resources
		has := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{
			Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{has}, PreferredVersion: has,
		})
	}
	answers["/apis"] = groups
	return answers
}

// kubeconfig returns a kubeconfig for an API server that answers only discovery.
func kubeconfig(t *testing.T) string {
	t.Helper()
	answers := discovery(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}]}`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
