//go:build linux

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// api queries the cluster's API server from the host.
type api struct {
	base   string
	client *http.Client
}

func (c *Cluster) api(s Settings) (*api, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.pki(), "admin.crt"), filepath.Join(c.pki(), "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(c.pki(), "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &api{
		base:   fmt.Sprintf("https://127.0.0.1:%d", s.Port),
		client: &http.Client{Transport: transport, Timeout: 15 * time.Second},
	}, nil
}

// get decodes the response for the path into answer, unless answer is nil.
func (a *api) get(ctx context.Context, path string, answer any) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return fmt.Errorf("asking the API server: %w", err)
	}
	resp, err := a.client.Do(ask)
	if err != nil {
		return fmt.Errorf("asking the API server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the API server for %s: %s", path, resp.Status)
	}
	if answer == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// apiNode contains the used fields of a Node object.
type apiNode struct {
	Metadata struct{ Name string }
	Status   struct {
		NodeInfo   struct{ BootID string }
		Conditions []struct{ Type, Status, Message string }
	}
}

// ready returns nil, or the reason why the node is not Ready in this boot.
func (n apiNode) ready(bootID string) error {
	if n.Status.NodeInfo.BootID != bootID {
		return fmt.Errorf("node %s has not registered since it was booted", n.Metadata.Name)
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" && condition.Status != "True" {
			return fmt.Errorf("node %s is not Ready: %s", n.Metadata.Name, condition.Message)
		}
		if condition.Type == "Ready" {
			return nil
		}
	}
	return fmt.Errorf("node %s has no Ready condition yet", n.Metadata.Name)
}

func (a *api) nodeReady(ctx context.Context, name, bootID string) error {
	var n apiNode
	if err := a.get(ctx, "/api/v1/nodes/"+name, &n); err != nil {
		return err
	}
	return n.ready(bootID)
}
