package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// storedReports describes the reports of one namespace on a node.
type storedReports struct {
	node, namespace string
	// claims is the number of claims with reports, each the reports of a claim; first numbers the claims.
	first, claims, each int
}

// index is the plugin's file about the reports of a claim.
type index struct {
	Schema   int             `json:"schema"`
	Claim    store.Claim     `json:"claim"`
	Released bool            `json:"released"`
	Reports  []report.Report `json:"reports"`
}

// indexSchema is the version of index: plugins of both builds must know it.
const indexSchema = 1

// write stores the reports in the directory of a stopped plugin, in the form for claims whose pods are gone: all content files are links to
// one file. It returns their names.
func (s storedReports) write(dir string, content []byte) (names []string, err error) {
	sum := sha256.Sum256(content)
	one := filepath.Join(dir, ".bench-content")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(one, content, 0o600)); err != nil {
		return nil, fmt.Errorf("writing the content of reports: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(one)) }()
	for i := s.first; i < s.first+s.claims; i++ {
		uid, ended := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), time.Now()
		kept := index{Schema: indexSchema, Released: true, Claim: store.Claim{UID: uid, Namespace: s.namespace, Name: fmt.Sprintf("claim-%d", i), Node: s.node}}
		files := filepath.Join(dir, uid, "reports")
		if err := os.MkdirAll(files, 0o700); err != nil {
			return nil, fmt.Errorf("creating the directory of a claim's reports: %w", err)
		}
		for j := range s.each {
			r := report.Report{
				ID: fmt.Sprintf("%08x-s%d-%016x", i, j, j), Namespace: s.namespace, Claim: kept.Claim.Name, ClaimUID: uid, Node: s.node,
				Pod: "train-0", Container: "train", Process: "python3", PID: 1, Tool: "2022.4.2", Started: ended.Add(-time.Minute), Ended: &ended,
				State: report.Ready, File: "train.nsys-rep", Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
			}
			if err := os.Link(one, filepath.Join(files, r.ID+".nsys-rep")); err != nil {
				return nil, fmt.Errorf("creating the file of a report: %w", err)
			}
			kept.Reports = append(kept.Reports, r)
			names = append(names, r.ID)
		}
		raw, err := json.Marshal(kept)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, uid, "index.json"), raw, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the reports of a claim: %w", err)
		}
	}
	return names, nil
}

// keyPair is a self-signed certificate and its key, as PEM.
type keyPair struct{ certificate, key []byte }

// newKeyPair creates a pair for a server or client of that name.
func newKeyPair(name string) (p keyPair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, fmt.Errorf("creating a certificate for %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return p, fmt.Errorf("creating a certificate for %s: %w", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, fmt.Errorf("creating a certificate for %s: %w", name, err)
	}
	return keyPair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// write puts the pair and the certificate of the other side into a new directory, named as in a Secret.
func (p keyPair) write(dir string, other keyPair) error {
	failed := os.MkdirAll(dir, 0o700)
	for name, content := range map[string][]byte{"tls.crt": p.certificate, "tls.key": p.key, "ca.crt": other.certificate} {
		failed = errors.Join(failed, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return failed
}
