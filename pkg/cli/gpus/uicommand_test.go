package gpus_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/prism-gpu/prism/pkg/cli"
)

// watchable is the address of the API server whose watches send nothing.
func (s *apiServer) watchable(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		s.serve(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// get requests a URL of the page.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	if response.Header.Get("Content-Type") != "text/event-stream" {
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if data, found := strings.CutPrefix(line, "data: "); found {
			return response.StatusCode, data
		}
	}
}

func TestUICommand_APIServer_PageUntilInterrupted(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	pod, claim := waits("train")
	s.answers["/api/v1/pods"], s.answers[resourceAPI+"resourceclaims"] = items(pod), items(claim)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: prod\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: prod, context: {cluster: c, namespace: team}}]\n", s.watchable(t)), 0o600))
	out, printed := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	command := cli.Command("test", genericiooptions.IOStreams{Out: printed, ErrOut: io.Discard})
	command.SetArgs([]string{"ui", "--kubeconfig", config})
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(ctx) }()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	match := regexp.MustCompile(`^GPUs of prod: open (http://127\.0\.0\.1:\d+)/(\?token=[0-9a-f]{64})\n$`).FindStringSubmatch(line)
	require.NotNil(t, match, line)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	status, page := get(t, browser, match[1]+"/"+match[2])
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, "/script.js")
	_, event := get(t, browser, match[1]+"/events")
	for _, text := range []string{`"full":true`, `"name":"node-1"`, `"product":"NVIDIA H100 80GB HBM3"`, `"namespace":"team","name":"train"`, `"source":"prod"`} {
		assert.Contains(t, event, text)
	}
	status, explanation := get(t, browser, match[1]+"/explain?pod=team/train")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, explanation, "Pod team/train, Pending for 14m: claim train-gpu fits now on 1 node")
	status, _ = get(t, &http.Client{}, match[1]+"/events")
	assert.Equal(t, http.StatusForbidden, status)

	interrupt()
	assert.NoError(t, <-done)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		assert.True(t, strings.HasPrefix(request, "GET "), request)
	}
}

func TestUICommand_BadPort_OneSentence(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	_, errOut, status := s.run(t, "ui --port 70000")
	assert.Equal(t, "error: --port: must be between 0 and 65535, got 70000\n", errOut)
	assert.Equal(t, 1, status)
}

func TestMapCommand_HTML_OneFileWithExplanations(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, "h100-80")
	pod, claim := waits("train")
	s.answers["/api/v1/pods"], s.answers[resourceAPI+"resourceclaims"] = items(pod), items(claim)
	out, errOut, status := s.run(t, "map -o html")
	assert.Empty(t, errOut)
	assert.Equal(t, 0, status)
	assert.True(t, strings.HasPrefix(out, "<!doctype html>"), out[:min(len(out), 80)])
	assert.Contains(t, out, `"name":"node-1"`)
	assert.Contains(t, out, "claim train-gpu fits now on 1 node")

	for args, want := range map[string]string{
		"map -o html --watch": "error: --watch: not supported with --output html; kubectl prism ui shows changes\n",
		"map -o html node-1":  "error: --output html: not supported for one node; --node-selector selects nodes\n",
		"map -o svg":          "error: --output: unsupported value \"svg\"; supported values: wide, json, yaml, html\n",
	} {
		out, errOut, status := s.run(t, args)
		assert.Equal(t, want, errOut)
		assert.Equal(t, 1, status, args)
		assert.Empty(t, out)
	}
	s.answers[resourceAPI+"resourceslices"] = items()
	_, errOut, status = s.run(t, "map -o html")
	assert.Contains(t, errOut, "no node has ResourceSlices of driver gpu.prism.dev")
	assert.Equal(t, 1, status)
}
