package profile_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationapi "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/controller/reports"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/node"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// errBusy is returned when an incomplete report is removed.
var errBusy = errors.New("the report is not complete")

// oneOfEach is a cluster in which every namespace exists.
type oneOfEach struct{}

func (oneOfEach) Known(context.Context, string) types.UID            { return "uid" }
func (oneOfEach) Current(context.Context, string) (types.UID, error) { return "uid", nil }

// kept stores reports with content by id.
type kept struct {
	mu      sync.Mutex
	reports []report.Report
	files   map[string]string
}

func (k *kept) List(string, string) []report.Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]report.Report{}, k.reports...)
}

func (k *kept) Get(_, id string) (report.Report, error) {
	for _, r := range k.List("", "") {
		if r.ID == id {
			return r, nil
		}
	}
	return report.Report{}, fs.ErrNotExist
}

func (k *kept) Content(uid, id string) (*os.File, report.Report, error) {
	r, err := k.Get(uid, id)
	if err != nil {
		return nil, r, err
	}
	file, err := os.Open(k.files[id])
	return file, r, err
}

func (k *kept) Delete(uid, id string, _ report.Deletion) error {
	if r, err := k.Get(uid, id); err != nil || !r.State.Final() {
		return cmp.Or(err, errBusy)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports = nil
	return nil
}

// allowed is the list of verbs that a user may use.
type allowed []string

func (a allowed) Allowed(_ context.Context, _ user.Info, what authorizationapi.ResourceAttributes) (bool, string, error) {
	for _, verb := range a {
		if verb == what.Verb+what.Subresource {
			return true, "", nil
		}
	}
	return false, "", nil
}

// certificates writes certificates of one authority for the node and for the controller.
func certificates(t *testing.T) (ofNode, ofController string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	write := func(name string, use x509.ExtKeyUsage) string {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
		}
		dir := t.TempDir()
		for file, template := range map[string]*x509.Certificate{"ca.crt": authority, "tls.crt": leaf} {
			der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, key)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		}
		der, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
		return dir
	}
	return write("prism-node", x509.ExtKeyUsageServerAuth), write("prism-controller", x509.ExtKeyUsageClientAuth)
}

// serving starts the API of reports over the node API of one node; other nodes are silent. There is no API server in front of it.
func serving(t *testing.T, k *kept, access allowed, silent ...string) *server {
	t.Helper()
	ofNode, ofController := certificates(t)
	at := make(chan net.Addr, 1)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		assert.NoError(t, node.New(node.Options{
			Address: "127.0.0.1:0", Certificate: ofNode, Client: config.ReportsClientName, Store: k,
			Busy: func(err error) bool { return errors.Is(err, errBusy) }, Listening: func(a net.Addr) { at <- a },
		}).Run(ctx))
	})
	t.Cleanup(func() { stop(); running.Wait() })
	endpoints := []reports.Endpoint{{Node: "node-1", Address: (<-at).String()}}
	for _, name := range silent {
		endpoints = append(endpoints, reports.Endpoint{Node: name})
	}
	s := &reports.Server{
		Nodes:  reports.NewNodes(ofController, func(context.Context) ([]reports.Endpoint, error) { return endpoints, nil }, oneOfEach{}),
		Access: access,
		Users: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "ada"}}, true, nil
		}),
	}
	front := httptest.NewServer(s.Handler())
	t.Cleanup(front.Close)
	return &server{Server: front}
}

// TestCommands_RealAPI_Agree: the commands understand responses of the controller and the plugin.
func TestCommands_RealAPI_Agree(t *testing.T) {
	content := random(maxRange + 1000)
	file, dir := filepath.Join(t.TempDir(), "stored"), t.TempDir()
	require.NoError(t, os.WriteFile(file, content, 0o600))
	sum := sha256.Sum256(content)
	r := report.Report{
		ID: "1a2b3c4d-x7", Namespace: "team", Claim: "gpu", ClaimUID: "1a2b3c4d-0000-0000-0000-000000000000", Pod: "train", Container: "main",
		Node: "node-1", Process: "python3", Started: time.Now().Add(-time.Hour), State: report.Recording,
	}
	k := &kept{reports: []report.Report{r}, files: map[string]string{r.ID: file}}
	s := serving(t, k, allowed{"list", "get", "getcontent", "delete"}, "node-2")

	out, errOut, err := s.run(t.Context(), t, "list", "-o", "name", "--pod", "train", "-l", "gpu.prism.dev/claim=gpu")
	require.NoError(t, err)
	assert.Equal(t, "report.profiles.gpu.prism.dev/1a2b3c4d-x7\n", out)
	assert.Equal(t, "Warning: node node-2 did not answer: their reports are missing from the list; profiling continues there\n", errOut)
	_, _, err = s.run(t.Context(), t, "download", "no-1")
	require.EqualError(t, err, `reading report no-1 in namespace team: report "no-1" was not found, and these nodes did not answer: node-2`)
	_, errOut, err = s.run(t.Context(), t, "rm", r.ID)
	require.Error(t, err)
	assert.Contains(t, errOut, "error: deleting report 1a2b3c4d-x7 in namespace team: ")

	r.State, r.File, r.Size, r.SHA256 = report.Ready, "x.nsys-rep", int64(len(content)), hex.EncodeToString(sum[:])
	k.mu.Lock()
	k.reports = []report.Report{r}
	k.mu.Unlock()
	out, _, err = s.run(t.Context(), t, "download", r.ID, "-O", dir, "--remove-source")
	require.NoError(t, err)
	assert.Contains(t, out, "report 1a2b3c4d-x7 downloaded, sha256 verified\n")
	assert.Contains(t, out, `report.profiles.gpu.prism.dev "1a2b3c4d-x7" of namespace team removed`)
	got, err := os.ReadFile(filepath.Join(dir, "x.nsys-rep"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
	assert.Empty(t, k.List("", ""))
}

func TestCommands_RealAPI_StrangersRefused(t *testing.T) {
	k := &kept{reports: []report.Report{{
		ID: "a-1", Namespace: "team", ClaimUID: "u", Node: "node-1", State: report.Ready, File: "x.nsys-rep", Size: 1, SHA256: hex.EncodeToString(make([]byte, 32)),
	}}}
	s := serving(t, k, allowed{"list", "get"})
	_, errOut, err := s.run(t.Context(), t, "download", "a-1", "-O", t.TempDir())
	require.Error(t, err)
	assert.Contains(t, errOut, "downloading report a-1 in namespace team: the API server denied access: ")
	_, errOut, err = s.run(t.Context(), t, "rm", "a-1")
	require.Error(t, err)
	assert.Contains(t, errOut, "deleting report a-1 in namespace team: the API server denied access: ")
	s = serving(t, k, nil)
	_, _, err = s.run(t.Context(), t, "list")
	require.ErrorContains(t, err, "an administrator can bind ClusterRole view, which lists reports")
}
