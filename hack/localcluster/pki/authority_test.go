package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIssue_Certificate_Trusted(t *testing.T) {
	dir := t.TempDir()
	authority, err := Open(dir)
	require.NoError(t, err)
	subject := Subject{FileBase: "server", CommonName: "system:node:n0", Organization: "system:nodes", DNSNames: []string{"n0"}, IPs: []string{"172.30.0.10"}}
	require.NoError(t, authority.Issue(subject))

	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	for _, name := range []string{"n0", "172.30.0.10"} {
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		require.NoError(t, err, name)
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other"})
	require.Error(t, err)
	assert.Equal(t, []string{"system:nodes"}, cert.Subject.Organization)
}

func TestIssue_FilesThere_Kept(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{}
	for range 2 {
		authority, err := Open(dir)
		require.NoError(t, err)
		require.NoError(t, authority.Issue(Subject{FileBase: "admin", CommonName: "admin"}))
		require.NoError(t, authority.KeyPair("service-account"))
		for _, name := range []string{"ca.crt", "admin.crt", "service-account.key"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			if before, ok := files[name]; ok {
				assert.Equal(t, before, text, name)
			}
			files[name] = text
		}
	}
}
