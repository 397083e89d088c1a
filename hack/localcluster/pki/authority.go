// Package pki creates the certificates of one cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime exceeds the lifetime of any such cluster.
const lifetime = 10 * 365 * 24 * time.Hour

// Subject is the subject of a certificate.
type Subject struct {
	CommonName   string
	Organization string
	DNSNames     []string
	IPs          []string
	FileBase     string
}

// Authority signs certificates into a folder.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Open reads or creates the CA in dir: ca.crt and ca.key.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the certificate folder: %w", err)
	}
	if a, err := read(dir); err == nil {
		return a, nil
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := certificate(Subject{CommonName: "localcluster"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority's certificate: %w", err)
	}
	// The key is written first: a certificate without its key would be mistaken for a complete CA.
	if err := writePair(dir, "ca", der, key); err != nil {
		return nil, err
	}
	return read(dir)
}

func read(dir string) (*Authority, error) {
	keyBlock, err := readPEM(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's key: %w", err)
	}
	certBlock, err := readPEM(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certBlock)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	return &Authority{dir: dir, cert: cert, key: key}, nil
}

// Issue writes FileBase.crt and FileBase.key for the subject, for both ends of a connection, unless they exist.
func (a *Authority) Issue(subject Subject) error {
	if exists(filepath.Join(a.dir, subject.FileBase+".crt")) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	template, err := certificate(subject)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("signing the certificate of %s: %w", subject.CommonName, err)
	}
	return writePair(a.dir, subject.FileBase, der, key)
}

// KeyPair writes base.key and base.pub (the pair that signs service account tokens) unless they exist.
func (a *Authority) KeyPair(base string) error {
	if exists(filepath.Join(a.dir, base+".pub")) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if err := writeKey(a.dir, base, key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", base, err)
	}
	return writePEM(filepath.Join(a.dir, base+".pub"), "PUBLIC KEY", der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

func certificate(s Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.CommonName},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:     s.DNSNames,
	}
	if s.Organization != "" {
		template.Subject.Organization = []string{s.Organization}
	}
	for _, ip := range s.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	return template, nil
}

func writePair(dir, base string, der []byte, key *ecdsa.PrivateKey) error {
	if err := writeKey(dir, base, key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, base+".crt"), "CERTIFICATE", der)
}

func writeKey(dir, base string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", base, err)
	}
	return writePEM(filepath.Join(dir, base+".key"), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("reading %s: no PEM block in it", path)
	}
	return block.Bytes, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
