package usage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/cli/usage"
)

// server answers each path with a body; other paths are not found. It records the requests.
type server struct {
	*httptest.Server
	answers map[string]string

	mu       sync.Mutex
	requests []string
}

func newServer(t *testing.T, answers map[string]string) (*server, kubernetes.Interface) {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		body, found := s.answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	return s, client
}

const answer = `{"status":"success","data":{"resultType":"vector","result":[
	{"metric":{"__name__":"prism_gpu_up","gpu_uuid":"G1"},"value":[1,"1"]},
	{"metric":{"__name__":"prism_gpu_power_usage_watts","gpu_uuid":"G1"},"value":[1,"NaN"]}]}}`

func TestPrometheus_URLOrService_SameSamples(t *testing.T) {
	t.Parallel()
	const proxy = "/api/v1/namespaces/monitoring/services/http:prometheus:9090/proxy/api/v1/query"
	s, client := newServer(t, map[string]string{"/prefix/api/v1/query": answer, proxy: answer})
	for _, address := range []string{s.URL + "/prefix/", "monitoring/prometheus:9090"} {
		samples, err := usage.Prometheus(t.Context(), client, address)
		require.NoError(t, err, address)
		require.Len(t, samples, 2)
		assert.Equal(t, "prism_gpu_up", samples[0].Name)
		assert.Equal(t, "G1", samples[0].Labels["gpu_uuid"])
		assert.InDelta(t, 1, samples[0].Value, 0)
	}
	assert.Equal(t, []string{"GET /prefix/api/v1/query", "GET " + proxy}, s.requests)
}

func TestPrometheus_Silent_OneSentence(t *testing.T) {
	t.Parallel()
	s, client := newServer(t, map[string]string{
		"/empty/api/v1/query":  `{"status":"success","data":{"resultType":"vector","result":[]}}`,
		"/failed/api/v1/query": `{"status":"error","errorType":"execution","error":"query timed out"}`,
		"/page/api/v1/query":   "<html>",
		"/odd/api/v1/query":    `{"status":"success","data":{"result":[{"metric":{},"value":[1,2]}]}}`,
	})
	for address, want := range map[string]string{
		s.URL + "/empty":     "it has no metrics of prism-exporter; it must scrape the exporter pods",
		s.URL + "/failed":    "query timed out",
		s.URL + "/page":      "the answer is not from Prometheus",
		s.URL + "/odd":       `the answer is not from Prometheus: value ""`,
		s.URL + "/none":      "HTTP status 404 Not Found",
		"http://127.0.0.1:1": "dial tcp 127.0.0.1:1: connect: connection refused",
	} {
		_, err := usage.Prometheus(t.Context(), client, address)
		assert.EqualError(t, err, "querying Prometheus "+address+": "+want, address)
	}
	_, err := usage.Prometheus(t.Context(), client, "a/b:9090")
	require.ErrorContains(t, err, "querying Prometheus a/b:9090: ")
	for _, address := range []string{"prometheus", "a/b", "/b:1", "a/:1", "a/b:", "ftp://x/", "http://", "a/b:1/c"} {
		_, err := usage.Prometheus(t.Context(), client, address)
		assert.EqualError(t, err, `--prometheus: must be a URL or namespace/service:port, got "`+address+`"`)
	}
}

// TestPrometheus_Password_NotInErrors: the page of kubectl prism ui shows them.
func TestPrometheus_Password_NotInErrors(t *testing.T) {
	t.Parallel()
	_, client := newServer(t, nil)
	for address, want := range map[string]string{
		"http://me:secret@127.0.0.1:1": "querying Prometheus http://me:xxxxx@127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused",
		"ftp://me:secret@host/":        `--prometheus: must be a URL or namespace/service:port, got "ftp://me:xxxxx@host/"`,
	} {
		_, err := usage.Prometheus(t.Context(), client, address)
		assert.EqualError(t, err, want)
	}
}

// page is the page of an exporter.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../exporter/metrics/testdata/native.txt")
	require.NoError(t, err)
	return string(text)
}

func TestParse_PageOfTheExporter_GPUsAndPods(t *testing.T) {
	t.Parallel()
	samples, err := usage.Parse(strings.NewReader(page(t)), "n1")
	require.NoError(t, err)
	u := usage.Of(samples)
	require.NotEmpty(t, u.GPUs)
	for uuid, g := range u.GPUs {
		assert.Equal(t, "n1", g.Node)
		assert.NotNil(t, g.Up, uuid)
	}
	require.NotEmpty(t, u.Pods)
	for name, p := range u.Pods {
		assert.NotEmpty(t, name.Namespace)
		assert.Positive(t, p.Devices, name)
	}
	_, err = usage.Parse(strings.NewReader("{"), "n1")
	assert.ErrorContains(t, err, "reading metrics: ")
}

// pods is the answer to a LIST of exporter pods.
func pods(all ...string) string {
	return `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(all, ",") + `]}`
}

func pod(node, env string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"prism-system","name":"exporter-%s"},"spec":{"hostPID":true,"nodeName":%q,"containers":[{"name":"exporter",
		"ports":[{"name":"metrics","containerPort":9500}],"env":[{"name":%q}]}]}}`, node, node, env)
}

func TestExporters_Nodes_EachAskedThroughTheAPIServer(t *testing.T) {
	t.Parallel()
	const proxy = "/api/v1/namespaces/prism-system/pods/"
	s, client := newServer(t, map[string]string{
		"/api/v1/pods":                                 pods(pod("n1", "A"), pod("n2", "PRISM_WEB_CONFIG_FILE"), pod("n3", "A"), pod("n4", "A"), pod("", "A")),
		proxy + "exporter-n1:9500/proxy/metrics":       page(t),
		proxy + "https:exporter-n2:9500/proxy/metrics": page(t),
	})
	samples, failed, err := usage.Exporters(t.Context(), client, func(node string) bool { return node != "n4" })
	require.NoError(t, err)
	nodes := map[string]bool{}
	for _, s := range samples {
		nodes[s.Node] = true
	}
	assert.Equal(t, map[string]bool{"n1": true, "n2": true}, nodes)
	require.Len(t, failed, 1)
	assert.ErrorContains(t, failed[0], "reading metrics of node n3 from pod prism-system/exporter-n3: ")
	assert.NotContains(t, strings.Join(s.requests, " "), "n4")
	delete(s.answers, proxy+"exporter-n1:9500/proxy/metrics")
	_, _, err = usage.Exporters(t.Context(), client, func(node string) bool { return node == "n1" })
	assert.ErrorContains(t, err, "reading metrics of node n1 ")
}

func TestExporters_NoneOrTooMany_OneSentence(t *testing.T) {
	t.Parallel()
	s, client := newServer(t, map[string]string{"/api/v1/pods": pods()})
	all := func(string) bool { return true }
	_, _, err := usage.Exporters(t.Context(), client, all)
	require.EqualError(t, err, "no pods of prism-exporter found: set exporter.enabled in the chart, or --prometheus")
	var many []string
	for i := range usage.MostNodes + 1 {
		many = append(many, pod(fmt.Sprintf("n%d", i), "A"))
	}
	s.answers["/api/v1/pods"] = pods(many...)
	_, _, err = usage.Exporters(t.Context(), client, all)
	require.EqualError(t, err, "51 nodes have exporters, and more than 50 are not asked one by one: set --prometheus")
	assert.Equal(t, []string{"GET /api/v1/pods", "GET /api/v1/pods"}, s.requests)
}

// TestExporters_PodsOfTenants_NotAsked: they can have the labels of exporters, name GPUs of others, and answer without end.
func TestExporters_PodsOfTenants_NotAsked(t *testing.T) {
	t.Parallel()
	const proxy = "/api/v1/namespaces/prism-system/pods/"
	foreign := strings.Replace(strings.Replace(pod("n2", "A"), "prism-system", "tenant", 1), `"hostPID":true,`, "", 1)
	s, client := newServer(t, map[string]string{
		"/api/v1/pods":                           pods(pod("n1", "A"), foreign),
		proxy + "exporter-n1:9500/proxy/metrics": page(t),
	})
	samples, failed, err := usage.Exporters(t.Context(), client, func(string) bool { return true })
	require.NoError(t, err)
	assert.NotEmpty(t, samples)
	assert.Empty(t, failed)
	assert.NotContains(t, strings.Join(s.requests, " "), "tenant")
	s.answers[proxy+"exporter-n1:9500/proxy/metrics"] = strings.Repeat("# a comment of 32 characters.....\n", 1<<21)
	_, _, err = usage.Exporters(t.Context(), client, func(string) bool { return true })
	assert.ErrorContains(t, err, "reading metrics of node n1 from pod prism-system/exporter-n1: the answer is larger than 64 MiB")
}
