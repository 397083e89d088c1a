package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	nodeapi "github.com/prism-gpu/prism/pkg/plugin/profiler/node"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestStoredReports_Plugin_AnswersWithThem: the plugin's own store and server answer with the reports that the benchmark writes, and accept
// its certificates.
func TestStoredReports_Plugin_AnswersWithThem(t *testing.T) {
	t.Parallel()
	dir, serving := t.TempDir(), t.TempDir()
	a, err := storedReports{node: "n0", namespace: "a", first: 1, claims: 2, each: 3}.write(dir, []byte("content"))
	require.NoError(t, err)
	b, err := storedReports{node: "n0", namespace: "b", first: 3, claims: 1, each: 2}.write(dir, []byte("content"))
	require.NoError(t, err)
	require.Equal(t, []int{6, 2}, []int{len(a), len(b)})
	for _, name := range a {
		assert.Empty(t, validation.IsDNS1123Label(name))
	}
	kept, err := store.Open(store.Options{Dir: dir, Files: disk.OS{}, Failed: func(uid string, err error) { assert.NoError(t, err, uid) }})
	require.NoError(t, err)
	authority, err := writeCertificates(serving, "controller.bench.svc")
	require.NoError(t, err)
	assert.Equal(t, read(t, filepath.Join(serving, "serving", "tls.crt")), authority)

	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	server := nodeapi.New(nodeapi.Options{
		Address: "127.0.0.1:0", Certificate: filepath.Join(serving, "node"), Client: config.ReportsClientName, Store: kept,
		Listening: func(at net.Addr) { listening <- at },
	})
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		stop()
		assert.NoError(t, <-ended)
	}()
	client := clientWith(t, filepath.Join(serving, "client"))
	url := "https://" + (<-listening).String() + "/v1/reports"
	var found struct{ Reports []report.Report }
	require.NoError(t, json.Unmarshal(get(t, client, url+"?namespace=a"), &found))
	var names []string
	for _, r := range found.Reports {
		names = append(names, r.ID)
		assert.Equal(t, report.Ready, r.State, "its file is there")
	}
	assert.Equal(t, a, names)
	r := found.Reports[4]
	assert.Equal(t, "content", string(get(t, client, url+"/"+r.ClaimUID+"/"+r.ID+"/content")))
	require.NoError(t, kept.Delete(r.ClaimUID, r.ID, report.Deletion{}))
	assert.Equal(t, "content", string(get(t, client, url+"/"+found.Reports[3].ClaimUID+"/"+found.Reports[3].ID+"/content")), "others keep theirs")
}

// clientWith returns the client of a controller with the certificate of a directory.
func clientWith(t *testing.T, dir string) *http.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	require.NoError(t, err)
	authority := x509.NewCertPool()
	require.True(t, authority.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt"))))
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: authority, ServerName: config.ReportsServerName,
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

func get(t *testing.T, client *http.Client, url string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	return body
}
