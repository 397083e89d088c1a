package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/prism-gpu/prism/pkg/listen"
)

// waitLimit is the timeout of a wait.
const waitLimit = time.Minute

// certificate creates a directory with tls.crt and tls.key.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: signed}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}

// client connects from an address of this machine, with a new connection for each request.
func client(from string) *http.Client {
	return &http.Client{Timeout: waitLimit, Transport: &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}}
}

// get returns the status of a response.
func get(t *testing.T, from, url string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	answer, err := client(from).Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// collector stores the runnables that are added to a manager.
type collector struct {
	manager.Manager
	added []manager.Runnable
}

func (c *collector) Add(r manager.Runnable) error {
	c.added = append(c.added, r)
	return nil
}

// TestServing_ClientTakesAll_OthersAnswered: a client that holds connections to a port of the controller, or starts requests without
// sending them, does not block the API server or the kubelet, and cannot use more memory.
func TestServing_ClientTakesAll_OthersAnswered(t *testing.T) {
	t.Parallel()
	admission := newAdmissionServer("127.0.0.1:0", certificate(t))
	admission.Register("/ok", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	require.Error(t, admission.StartedChecker()(nil), "before the start")
	all := &collector{}
	require.NoError(t, servePages(t.Context(), all, "127.0.0.1:0", "127.0.0.1:0", admission.StartedChecker()))
	at := func(i int) string {
		return all.added[i].(*manager.Server).Listener.Addr().String() //nolint:forcetypeassert // as servePages adds them
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	runs := append(all.added, admission)
	t.Cleanup(func() {
		stop()
		for range runs {
			require.NoError(t, <-ended)
		}
	})
	for _, each := range runs {
		go func() { ended <- each.Start(ctx) }()
	}
	require.Eventually(t, func() bool { return admission.StartedChecker()(nil) == nil }, waitLimit, time.Millisecond)
	for _, c := range []struct {
		scheme, address, path string
		limits                listen.Limits
	}{
		{"https://", admission.at.Load().String(), "/ok", listen.Admission}, {"http://", at(0), "/metrics", listen.Pages}, {"http://", at(1), "/readyz", listen.Pages},
	} {
		url := c.scheme + c.address + c.path
		for range c.limits.PerClient {
			held, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", c.address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = held.Close() })
		}
		_, err := get(t, "127.0.0.2", url)
		require.Error(t, err, "%s: its share is taken", url)
		status, err := get(t, "127.0.0.1", url)
		require.NoError(t, err, url)
		assert.Equal(t, http.StatusOK, status, url)
	}
}
