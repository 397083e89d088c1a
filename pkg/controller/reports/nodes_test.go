package reports

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
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/node"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

var errBusy = errors.New("the report is being recorded")

// fakeNode stores reports in memory behind the node API of plugins.
type fakeNode struct {
	dir     string
	content map[string]string
	busy    bool

	mu      sync.Mutex
	reports []report.Report
}

// always is the UID of every namespace.
type always types.UID

func (a always) Known(context.Context, string) types.UID            { return types.UID(a) }
func (a always) Current(context.Context, string) (types.UID, error) { return types.UID(a), nil }

// List returns more than requested: callers must not rely on its filter.
func (f *fakeNode) List(string, string) []report.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]report.Report{}, f.reports...)
}

func (f *fakeNode) Get(_, id string) (report.Report, error) {
	for _, r := range f.List("", "") {
		if r.ID == id {
			return r, nil
		}
	}
	return report.Report{}, fs.ErrNotExist
}

func (f *fakeNode) Content(uid, id string) (*os.File, report.Report, error) {
	r, err := f.Get(uid, id)
	if err != nil {
		return nil, r, err
	}
	path := filepath.Join(f.dir, id)
	if err := os.WriteFile(path, []byte(f.content[id]), 0o600); err != nil {
		return nil, r, err
	}
	file, err := os.Open(path)
	return file, r, err
}

func (f *fakeNode) Delete(uid, id string, d report.Deletion) error {
	if f.busy {
		return errBusy
	}
	r, err := f.Get(uid, id)
	if err == nil {
		err = d.Check(r)
	}
	if err != nil || d.DryRun {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = slices.DeleteFunc(f.reports, func(r report.Report) bool { return r.ID == id })
	return nil
}

// newNode returns a node with ready reports of namespace team, by name.
func newNode(t *testing.T, name string, content map[string]string) (func(context.Context) ([]Endpoint, error), string) {
	t.Helper()
	f := &fakeNode{content: content}
	for id, text := range content {
		f.reports = append(f.reports, stored(name, "team", id, text))
	}
	return f.serve(t, name)
}

// serve runs the plugin's own server, and returns its endpoints with the certificate of controllers.
func (f *fakeNode) serve(t *testing.T, name string) (func(context.Context) ([]Endpoint, error), string) {
	t.Helper()
	a := newAuthority(t)
	at := f.listen(t, a.issue(t, config.ReportsServerName))
	return func(context.Context) ([]Endpoint, error) { return []Endpoint{{Node: name, Address: at}}, nil }, a.issue(t, "prism-controller")
}

// listen runs the plugin's own server with a certificate, and returns its address.
func (f *fakeNode) listen(t testing.TB, certificate string) string {
	t.Helper()
	f.dir = t.TempDir()
	listening := make(chan net.Addr, 1)
	server := node.New(node.Options{
		Address: "127.0.0.1:0", Certificate: certificate, Client: "prism-controller", Store: f, Busy: func(err error) bool { return errors.Is(err, errBusy) },
		Listening: func(at net.Addr) { listening <- at },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return (<-listening).String()
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{certificate, key}
}

// issue writes a certificate for a name, and the certificate of the authority, into a directory.
func (a authority) issue(t testing.TB, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "EC PRIVATE KEY", Bytes: private},
		"ca.crt": {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}

// TestNodes_AnswerAboutOthers_LeftOut: a compromised node only affects its own reports.
func TestNodes_AnswerAboutOthers_LeftOut(t *testing.T) {
	t.Parallel()
	f := &fakeNode{reports: []report.Report{
		stored("n0", "team", "a", ""), stored("n1", "team", "b", ""), stored("n0", "other", "c", ""), stored("n0", "", "d", ""),
		stored("n0", "team", "../e", ""), stored("n0", "team", "a/content", ""),
	}}
	endpoints, certificate := f.serve(t, "n0")
	found, err := list[reportItem](t.Context(), withLongLimits(NewNodes(certificate, endpoints, always("uid"))), Query{Namespace: "team"})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	assert.Equal(t, "a", found.Items[0].ID)
	assert.Empty(t, found.Silent)
}

// TestNodes_Silent_Named: nodes with another authority, without a plugin, or that refuse connections are named, and the others' reports are
// listed.
func TestNodes_Silent_Named(t *testing.T) {
	t.Parallel()
	endpoints, certificate := newNode(t, "n0", map[string]string{"a": "content"})
	stranger, _ := newNode(t, "n1", map[string]string{"b": "content"})
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	all := func(ctx context.Context) ([]Endpoint, error) {
		known, err := endpoints(ctx)
		require.NoError(t, err)
		other, err := stranger(ctx)
		require.NoError(t, err)
		return append(append(known, other...), Endpoint{Node: "n2"}, Endpoint{Node: "n3", Address: closed.Addr().String()}), nil
	}
	nodes := NewNodes(certificate, all, always("uid"))
	assert.Equal(t, limits{maxAnswer, nodeTimeout, listTime, headerTimeout, commandTimeout, commandTime}, nodes.limits)
	assert.Equal(t, headerTimeout, nodes.client.Transport.(*http.Transport).ResponseHeaderTimeout)
	nodes = withLongLimits(nodes)
	found, err := list[reportItem](t.Context(), nodes, Query{Namespace: "team"})
	require.NoError(t, err)
	assert.Len(t, found.Items, 1)
	assert.Equal(t, []string{"n1", "n2", "n3"}, found.Silent)

	server := serveAPI(t, nodes)
	response, _ := do(t, server, http.MethodGet, "alice", inTeam)
	assert.Equal(t, `299 - "the list is incomplete: these nodes did not answer: n1, n2, n3"`, response.Header.Get("Warning"))
	response, body := do(t, server, http.MethodGet, "alice", inTeam+"/unknown")
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	assert.Contains(t, body, "n1, n2, n3")
}

// TestDial_HandshakeHangs_Ends: with its context and at the limit: the other end of the connection is silent.
func TestDial_HandshakeHangs_Ends(t *testing.T) {
	t.Parallel()
	hanging, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hanging.Close()
	nodes := withLongLimits(NewNodes(newAuthority(t).issue(t, "prism-controller"), nil, always("uid")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := nodes.client.Transport.(*http.Transport).DialTLSContext(ctx, "tcp", hanging.Addr().String())
		done <- err
	}()
	connection, err := hanging.Accept()
	require.NoError(t, err)
	defer connection.Close()
	_, err = io.ReadFull(connection, make([]byte, 1))
	require.NoError(t, err, "the handshake has begun")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	nodes.limits.connect = time.Millisecond // a canceled request does not end it
	_, err = nodes.client.Transport.(*http.Transport).DialTLSContext(t.Context(), "tcp", hanging.Addr().String())
	timeout, ok := errors.AsType[net.Error](err) // of the connection or of the handshake
	require.True(t, ok, "%v", err)
	assert.True(t, timeout.Timeout())
}

// TestReadList_Answers_ReadAsFarAsTheyGo: only an answer above the limit is shortened, and other incomplete answers are errors.
func TestReadList_Answers_ReadAsFarAsTheyGo(t *testing.T) {
	t.Parallel()
	const limit, items = 1 << 10, 5
	of := func(id string) string { return `{"id":"` + id + `","claimUID":"u"}` }
	for name, c := range map[string]struct {
		answer, want string
		more         bool
		err          string
	}{
		"none":            {`{"reports":[]}`, "", false, ""},
		"another version": {`{"more":{"reports":[1]},"reports":[{"id":"a","claimUID":"u","new":1}],"next":"x"}`, "a", false, ""},
		"many":            {`{"reports":[` + of("a") + "," + of("b") + "," + of("c") + "," + of("d") + "," + of("e") + "," + of("f") + `]}`, "abcde", true, ""},
		"as many":         {`{"reports":[` + of("a") + "," + of("b") + "," + of("c") + "," + of("d") + "," + of("e") + `]}`, "abcde", true, ""},
		"no order":        {`{"reports":[` + of("b") + "," + of("a") + "," + of("b") + "," + of("c") + `]}`, "bc", false, ""},
		"no name":         {`{"reports":[` + of("") + "," + of("../a") + `,{"id":"a","claimUID":"../u"}]}`, "", false, ""},
		"large":           {`{"reports":[` + of("a") + "," + of(strings.Repeat("b", limit)) + `]}`, "a", true, ""},
		"breaks off":      {`{"reports":[` + of("a") + `,{"id":`, "a", false, "unexpected EOF"},
		"between":         {`{"reports":[` + of("a"), "a", false, "EOF"},
		"empty":           {"", "", false, "EOF"},
		"no list":         {`{"error":"x"}`, "", false, "missing list of reports"},
		"null":            {`{"reports":null}`, "", false, "at the beginning of the list of reports"},
		"not JSON":        {"<html>", "", false, "invalid character"},
	} {
		list, err := readList[reportItem](strings.NewReader(c.answer), "", bounds{bytes: limit, cost: limit * limit, items: items, kept: items}, func(session.Session) bool { return true })
		if c.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.err, name)
		}
		ids := ""
		for _, r := range list.items {
			ids += r.ID
		}
		assert.Equal(t, c.want, ids, name)
		assert.Equal(t, c.more, list.more, name)
	}
}

// TestFind_Again_OneNodeAsked: a download consists of many requests to one node.
func TestFind_Again_OneNodeAsked(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	a := newAuthority(t)
	var endpoints []Endpoint
	for i := range 5 {
		name := fmt.Sprintf("n%d", i)
		own := a.issue(t, config.ReportsServerName)
		pair, err := tls.LoadX509KeyPair(filepath.Join(own, "tls.crt"), filepath.Join(own, "tls.key"))
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			count, _ := asked.LoadOrStore(name, 0)
			asked.Store(name, count.(int)+1)
			reports := []report.Report{stored(name, "team", "of-"+name, "x")}
			answer(w, http.StatusOK, map[string]any{"reports": reports})
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
		server.StartTLS()
		t.Cleanup(server.Close)
		endpoints = append(endpoints, Endpoint{Node: name, Address: server.Listener.Addr().String()})
	}
	nodes := withLongLimits(NewNodes(a.issue(t, "prism-controller"), func(context.Context) ([]Endpoint, error) { return endpoints, nil }, always("uid")))
	for range 10 {
		r, found, silent, err := find[reportItem](t.Context(), nodes, "team", "of-n3", seats.Party{})
		require.NoError(t, err)
		require.True(t, found)
		assert.Empty(t, silent)
		assert.Equal(t, "n3", r.Node)
	}
	for _, e := range endpoints {
		count, _ := asked.Load(e.Node)
		switch e.Node {
		case "n3":
			assert.Equal(t, 10, count)
		case "n4":
			assert.Contains(t, []any{nil, 1}, count, "the list is full before it is its turn")
		default:
			assert.Equal(t, 1, count, e.Node)
		}
	}
	_, found, _, err := find[reportItem](t.Context(), nodes, "other", "of-n3", seats.Party{})
	require.NoError(t, err)
	assert.False(t, found, "a name that is known is of its namespace alone")
}
