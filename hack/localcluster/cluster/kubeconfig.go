//go:build linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/pki"
)

// serverNames are the names and addresses of the API server.
var serverNames = pki.Subject{
	CommonName: "kube-apiserver", FileBase: "apiserver",
	DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	IPs:      []string{"127.0.0.1", apiAddress, serviceAddress},
}

// writeCredentials creates missing certificates and writes every kubeconfig.
func (c *Cluster) writeCredentials(s Settings) error {
	authority, err := pki.Open(c.pki())
	if err != nil {
		return err
	}
	if err := authority.KeyPair("service-account"); err != nil {
		return err
	}
	proxy, err := pki.Open(c.frontProxy())
	if err != nil {
		return err
	}
	if err := proxy.Issue(pki.Subject{FileBase: "client", CommonName: frontProxyName}); err != nil {
		return err
	}
	clients := []pki.Subject{
		{FileBase: "admin", CommonName: "admin", Organization: "system:masters"},
		{FileBase: "scheduler", CommonName: "system:kube-scheduler"},
		{FileBase: "controller-manager", CommonName: "system:kube-controller-manager"},
	}
	servers := []pki.Subject{serverNames, {FileBase: "apiserver-kubelet", CommonName: "kube-apiserver-kubelet", Organization: "system:masters"}}
	for i := range s.Nodes {
		name := node.Name(i)
		clients = append(clients, pki.Subject{FileBase: name, CommonName: "system:node:" + name, Organization: "system:nodes"})
		servers = append(servers, pki.Subject{FileBase: "kubelet-" + name, CommonName: name, DNSNames: []string{name}, IPs: []string{node.Address(i)}})
	}
	for _, subject := range append(servers, clients...) {
		if err := authority.Issue(subject); err != nil {
			return err
		}
	}
	for _, client := range clients {
		server := "https://" + apiAddress + ":443"
		if client.FileBase == "admin" {
			server = fmt.Sprintf("https://127.0.0.1:%d", s.Port)
		}
		if err := c.writeKubeconfig(client.FileBase, server); err != nil {
			return err
		}
	}
	return nil
}

// frontProxy is the folder of the API server's certificate for the servers of aggregated APIs, and of the CA that signs no other
// certificate: a certificate of this CA can act as any user.
func (c *Cluster) frontProxy() string { return filepath.Join(c.pki(), "front-proxy") }

// frontProxyName is the name in that certificate.
const frontProxyName = "front-proxy-client"

func (c *Cluster) kubeconfig(user string) string { return filepath.Join(c.Dir, user+".kubeconfig") }

const kubeconfigText = `apiVersion: v1
kind: Config
clusters: [{name: %[1]s, cluster: {server: "%[2]s", certificate-authority: "%[3]s/ca.crt"}}]
users: [{name: %[4]s, user: {client-certificate: "%[3]s/%[4]s.crt", client-key: "%[3]s/%[4]s.key"}}]
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[4]s}}]
current-context: %[1]s
`

func (c *Cluster) writeKubeconfig(user, server string) error {
	text := fmt.Sprintf(kubeconfigText, "prism-"+c.Name, server, c.pki(), user)
	if err := os.WriteFile(c.kubeconfig(user), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}
