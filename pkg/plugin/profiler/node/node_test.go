package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	return &authority{cert, key}
}

// write creates a directory with a certificate for these names. Like the chart's certificates, it is valid for servers and clients.
func (a *authority) write(t *testing.T, dir string, names ...string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: raw}, "tls.key": {Type: "EC PRIVATE KEY", Bytes: private},
		"ca.crt": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
}

// controllers are the names in their certificates.
var controllers = []string{config.ReportsClientName}

var errBusy = errors.New("busy")

// one is a store with one report.
type one struct{ path string }

func (one) List(namespace, uid string) []report.Report {
	return []report.Report{{ID: "ie", Namespace: namespace, NamespaceUID: uid}, {ID: "id", Namespace: namespace, NamespaceUID: uid}}
}

func (o one) Get(claim, id string) (report.Report, error) {
	if claim != "uid" || id != "id" {
		return report.Report{}, fs.ErrNotExist
	}
	return report.Report{ID: id, SHA256: "abc"}, nil
}

func (o one) Content(claim, id string) (*os.File, report.Report, error) {
	r, err := o.Get(claim, id)
	if err != nil {
		return nil, r, err
	}
	f, err := os.Open(o.path)
	return f, r, err
}

func (o one) Delete(claim, id string, d report.Deletion) error {
	r, err := o.Get(claim, id)
	if err == nil {
		err = d.Check(r)
	}
	if err != nil || d.DryRun && d.Version != "" {
		return err
	}
	return errBusy
}

// asking sends a request with a certificate of an authority, for these names; without a certificate if it is nil.
type asking func(client *authority, names []string, method, path string, header http.Header) (*http.Response, error)

// options returns the options of a server with certificates of an authority.
func options(t *testing.T, of *authority) Options {
	t.Helper()
	dir, content := t.TempDir(), filepath.Join(t.TempDir(), "content")
	of.write(t, dir, config.ReportsServerName)
	require.NoError(t, os.WriteFile(content, []byte("0123456789"), 0o600))
	return Options{
		Address: "127.0.0.1:0", Certificate: dir, Client: config.ReportsClientName, Store: one{content}, Sessions: &waits{},
		Busy: func(err error) bool { return errors.Is(err, errBusy) },
	}
}

// serve starts a server and returns a function to ask it.
func serve(t *testing.T, of *authority) asking {
	t.Helper()
	addresses := make(chan net.Addr, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := options(t, of)
	o.Listening = func(a net.Addr) { addresses <- a }
	go func() { ended <- New(o).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return asks(t, of, (<-addresses).String(), nil)
}

// asks returns a function to ask the server at an address; if dial is nil, it connects over TCP.
func asks(t *testing.T, of *authority, address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) asking {
	t.Helper()
	return func(client *authority, names []string, method, path string, header http.Header) (*http.Response, error) {
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: config.ReportsServerName}
		config.RootCAs.AddCert(of.cert)
		if client != nil {
			mine := t.TempDir()
			client.write(t, mine, names...)
			pair, err := tls.LoadX509KeyPair(filepath.Join(mine, "tls.crt"), filepath.Join(mine, "tls.key"))
			require.NoError(t, err)
			config.Certificates = []tls.Certificate{pair}
		}
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, http.NoBody)
		require.NoError(t, err)
		request.Header = header
		return (&http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: dial, DisableKeepAlives: true}}).Do(request)
	}
}

func TestServer_Requests_AnsweredOrRefused(t *testing.T) {
	a := newAuthority(t)
	ask := serve(t, a)
	for _, c := range []struct {
		method, path, bytes string
		code                int
		body                string
	}{
		{"GET", "/v1/reports?namespace=n", "", 200, `"namespace":"n"`},
		{"GET", "/v1/reports?namespace=n&namespaceUID=u", "", 200, `"namespaceUID":"u"`},
		{"GET", "/v1/reports?namespace=n&id=id", "", 200, `"id":"id"`},
		{"GET", "/v1/reports?namespace=n&limit=1", "", 200, `"id":"id"`},
		{"GET", "/v1/reports?namespace=n&after=id", "", 200, `"id":"ie"`},
		{"GET", "/v1/reports?namespace=n&after=ie&limit=1", "", 200, `"reports":[]`},
		{"GET", "/v1/reports?namespace=n&id=other", "", 200, `"reports":[]`},
		{"GET", "/v1/reports?namespace=%3Cn%3E", "", 200, `"namespace":"<n>"`}, // with 6 bytes for each of these, less space would be left for reports
		{"GET", "/v1/reports/uid/id", "", 200, `"id":"id"`},
		{"GET", "/v1/reports/uid/other", "", 404, `"error":`},
		{"GET", "/v1/reports/uid/id/content", "", 200, "0123456789"},
		{"GET", "/v1/reports/uid/id/content", "bytes=2-4", 206, "234"},
		{"GET", "/v1/reports/..%2f..%2fetc/passwd/content", "", 404, `"error":`},
		{"DELETE", "/v1/reports/uid/id", "", 409, `"error":"busy"`},
		{"DELETE", "/v1/reports/uid/id?uid=other", "", 409, "precondition failed"},
		{"GET", "/v1/reports/uid/id?deletable=true", "", 409, `"error":"busy"`},
		{"GET", "/v1/reports/uid/id?deletable=true&resourceVersion=other", "", 409, "precondition failed"},
		{"GET", "/v1/reports/uid/id?deletable=true&resourceVersion=" + report.Report{ID: "id", SHA256: "abc"}.Version(), "", 200, `"id":"id"`},
		{"POST", "/v1/reports/uid/id", "", 405, ""},
	} {
		header := http.Header{}
		if c.bytes != "" {
			header.Set("Range", c.bytes)
		}
		answer, err := ask(a, controllers, c.method, c.path, header)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.code, answer.StatusCode, "%s %s", c.method, c.path)
		require.Contains(t, string(body), c.body, "%s %s", c.method, c.path)
		if c.code == http.StatusPartialContent {
			require.Equal(t, `"abc"`, answer.Header.Get("ETag"))
		}
	}
}

// TestServer_OtherCertificates_Refused: certificates of other authorities are refused, and certificates that the same authority signed for
// other names: root on one node can read the certificate of its plugin.
func TestServer_OtherCertificates_Refused(t *testing.T) {
	a := newAuthority(t)
	ask := serve(t, a)
	for name, client := range map[string]struct {
		of    *authority
		names []string
	}{
		"none":               {nil, nil},
		"another authority":  {newAuthority(t), controllers},
		"a plugin's":         {a, []string{config.ReportsServerName}},
		"no name":            {a, nil},
		"another name":       {a, []string{"prism-controller.evil"}},
		"both names":         {a, []string{config.ReportsClientName, config.ReportsServerName}},
		"a name with a star": {a, []string{"*"}},
	} {
		for _, request := range [][2]string{{http.MethodGet, "/v1/reports"}, {http.MethodDelete, "/v1/reports/uid/id"}} {
			answer, err := ask(client.of, client.names, request[0], request[1], nil)
			if err == nil {
				require.NoError(t, answer.Body.Close())
			}
			require.Error(t, err, name)
		}
	}
	answer, err := ask(a, []string{"other", config.ReportsClientName}, http.MethodGet, "/v1/reports", nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
}
