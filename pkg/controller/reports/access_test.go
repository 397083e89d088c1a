package reports

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationapi "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewed allows everything and stores the reviewed user.
type reviewed struct{ by user.Info }

func (r *reviewed) Allowed(_ context.Context, by user.Info, _ authorizationapi.ResourceAttributes) (bool, string, error) {
	r.by = by
	return true, "", nil
}

// frontProxy serves the API as controllers do: behind TLS that requests a certificate of clients, for API servers with a certificate of
// this authority and the name front-proxy-client.
func frontProxy(t *testing.T, of authority, access Reviewer) *httptest.Server {
	t.Helper()
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: authenticationNamespace, Name: authenticationMap},
		Data: map[string]string{
			clientAuthority:                      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.certificate.Raw})),
			"requestheader-allowed-names":        `["front-proxy-client"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		},
	})
	users, err := NewFrontProxy(client)
	require.NoError(t, err)
	go users.Run(t.Context())
	require.Eventually(t, func() bool {
		_, known := users.authority.VerifyOptions()
		return known && len(users.names.AllowedClientNames()) == 1
	}, time.Minute, 10*time.Millisecond)
	nodes := NewNodes(t.TempDir(), func(context.Context) ([]Endpoint, error) { return nil, nil }, always("uid"))
	server := httptest.NewUnstartedServer((&Server{Nodes: nodes, Users: users, Access: access}).Handler())
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// asUser sends a request with the headers of the API server, and with the certificate in a directory; "" sends none.
func asUser(t *testing.T, server *httptest.Server, certificate string) (int, string) {
	t.Helper()
	transport := server.Client().Transport.(*http.Transport).Clone()
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(certificate, "tls.crt"), filepath.Join(certificate, "tls.key"))
		require.NoError(t, err)
		// A server lists its authorities, and an honest client sends no other certificate.
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+inTeam, nil)
	require.NoError(t, err)
	request.Header = http.Header{
		"X-Remote-User": {"alice"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"a", "system:authenticated"}, "X-Remote-Extra-Scopes": {"x", "y"},
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// TestFrontProxy_Headers_AcceptedOfTheAPIServerAlone: a client that can reach the port could otherwise name any user.
func TestFrontProxy_Headers_AcceptedOfTheAPIServerAlone(t *testing.T) {
	t.Parallel()
	own, access := newAuthority(t), &reviewed{}
	server := frontProxy(t, own, access)
	for name, certificate := range map[string]string{
		"no certificate":    "",
		"another authority": newAuthority(t).issue(t, "front-proxy-client"),
		"another name":      own.issue(t, "kubelet"),
	} {
		code, body := asUser(t, server, certificate)
		assert.Equal(t, http.StatusUnauthorized, code, "%s: %s", name, body)
		assert.Contains(t, body, `"kind":"Status"`, name)
		assert.Nil(t, access.by, name)
	}
	code, body := asUser(t, server, own.issue(t, "front-proxy-client"))
	require.Equal(t, http.StatusOK, code, body)
	require.NotNil(t, access.by)
	assert.Equal(t, "alice", access.by.GetName())
	assert.Equal(t, "7", access.by.GetUID())
	assert.Equal(t, []string{"a", "system:authenticated"}, access.by.GetGroups())
	assert.Equal(t, map[string][]string{"scopes": {"x", "y"}}, access.by.GetExtra())
}

// TestAccess_User_ReviewedInFull: rights may depend on each attribute of a user.
func TestAccess_User_ReviewedInFull(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationapi.SubjectAccessReview{Status: authorizationapi.SubjectAccessReviewStatus{Allowed: true, Reason: "a role"}}, nil
	})
	allowed, why, err := (Access{client}).Allowed(t.Context(), &user.DefaultInfo{
		Name: "alice", UID: "7", Groups: []string{"a"}, Extra: map[string][]string{"scopes": {"x"}},
	}, attributes("get", resource+"/"+content, "team", "r"))
	require.NoError(t, err)
	assert.True(t, allowed)
	assert.Equal(t, "a role", why)
	require.Len(t, client.Actions(), 1)
	created, ok := client.Actions()[0].(clienttesting.CreateAction)
	require.True(t, ok)
	review, ok := created.GetObject().(*authorizationapi.SubjectAccessReview)
	require.True(t, ok)
	assert.Equal(t, authorizationapi.SubjectAccessReviewSpec{
		User: "alice", UID: "7", Groups: []string{"a"}, Extra: map[string]authorizationapi.ExtraValue{"scopes": {"x"}},
		ResourceAttributes: &authorizationapi.ResourceAttributes{
			Namespace: "team", Verb: "get", Group: "profiles.gpu.prism.dev", Version: "v1alpha1", Resource: "reports", Subresource: "content", Name: "r",
		},
	}, review.Spec)
}
