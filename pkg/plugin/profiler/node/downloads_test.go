package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

// spacious is a store in which each namespace contains a large report, whose claim is named like the namespace.
type spacious struct{ one }

func (s spacious) Content(claim, id string) (*os.File, report.Report, error) {
	f, err := os.Open(s.path)
	return f, report.Report{ID: id, Namespace: claim, Node: "n0", SHA256: "abc"}, err
}

// replicas is a node that controllers ask over connections of this process.
type replicas struct {
	t        *testing.T
	of       *authority
	listener *pipes
	pair     tls.Certificate
	asked    byte
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{t: t, of: newAuthority(t), listener: newPipes()}
	o := options(t, r.of)
	path := filepath.Join(t.TempDir(), "content")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 1<<20)), 0o600))
	o.Store = spacious{one{path}}
	mine := t.TempDir()
	r.of.write(t, mine, controllers...)
	var err error
	r.pair, err = tls.LoadX509KeyPair(filepath.Join(mine, "tls.crt"), filepath.Join(mine, "tls.key"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(o).serve(ctx, r.listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		time.Sleep(time.Minute) // both sides of a connection may still write their close messages
	})
	return r
}

// ask sends a request over its own connection, and only reads the headers of the response.
func (r *replicas) ask(path string, by seats.Party) *http.Response {
	r.t.Helper()
	return r.send(http.MethodGet, path+"?"+by.Query().Encode(), "")
}

// send sends a request with a body.
func (r *replicas) send(method, path, body string) *http.Response {
	r.t.Helper()
	r.asked++
	from, authorities := net.IPv4(127, 0, 0, r.asked), x509.NewCertPool() // one address is limited to few concurrent handshakes
	authorities.AddCert(r.of.cert)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: config.ReportsServerName, Certificates: []tls.Certificate{r.pair}}, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return r.listener.dial(from), nil },
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, "https://node"+path, strings.NewReader(body))
	require.NoError(r.t, err)
	answer, err := transport.RoundTrip(request)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// download starts a download that nothing reads.
func (r *replicas) download(namespace, user string, system bool) int {
	r.t.Helper()
	return r.ask("/v1/reports/"+namespace+"/id/content", seats.Party{User: user, System: system}).StatusCode
}

// TestContent_SeveralControllers_TenantBounded: regardless of the number of replicas of the controller that a tenant uses, other tenants
// can download, all can list and get, and the reserved seats are left for the cluster's controllers.
func TestContent_SeveralControllers_TenantBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		began := time.Now()
		for i := range contentSeats.Namespace {
			require.Equal(t, http.StatusOK, r.download("a", fmt.Sprint("robot", i/contentSeats.User), false))
		}
		refused := r.ask("/v1/reports/a/id/content", seats.Party{User: "other"})
		assert.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
		assert.Equal(t, "1", refused.Header.Get("Retry-After"))
		assert.Equal(t, http.StatusTooManyRequests, r.download("b", "robot0", false), "of the user")
		for i := range contentSeats.All - contentSeats.Namespace {
			require.Equal(t, http.StatusOK, r.download(fmt.Sprint("n", i/contentSeats.Namespace), fmt.Sprint("user", i/contentSeats.User), false))
		}
		assert.Equal(t, http.StatusTooManyRequests, r.download("c", "bob", false), "all of the node")
		for range contentSeats.Kept {
			require.Equal(t, http.StatusOK, r.download("c", "controller", true))
		}
		for range 8 {
			answer := r.ask("/v1/reports", seats.Party{User: "bob"})
			require.Equal(t, http.StatusOK, answer.StatusCode)
			require.NoError(t, answer.Body.Close())
		}
		for range 8 { // their connections stay open, and so may the ones of the lists and of the refused downloads
			require.Equal(t, http.StatusOK, r.send(http.MethodPost, "/v1/commands", "{}").StatusCode)
		}
		assert.Zero(t, time.Since(began), "nothing waited")

		time.Sleep(stallTime + 10*time.Second) // the server sends a close message, with TLS's timeout of 5 s
		synctest.Wait()
		assert.Equal(t, http.StatusOK, r.download("a", "robot0", false), "downloads without progress have ended")
		assert.Equal(t, http.StatusOK, r.download("c", "bob", false))
	})
}

// TestContent_ControllerOfAnEarlierVersion_NamespaceBounded: it does not name the user.
func TestContent_ControllerOfAnEarlierVersion_NamespaceBounded(t *testing.T) {
	s := New(options(t, newAuthority(t)))
	for range contentSeats.Namespace {
		require.True(t, s.downloads.Enter(contentSeats, seats.ParseParty(nil, "a")))
	}
	require.False(t, s.downloads.Enter(contentSeats, seats.ParseParty(nil, "a")))
	require.True(t, s.downloads.Enter(contentSeats, seats.ParseParty(nil, "b")))
}
