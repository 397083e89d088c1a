//go:build linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/hack/localcluster/node"
)

// Addresses inside a cluster; they are the same in every cluster.
const (
	apiAddress     = "172.30.0.1"
	serviceAddress = "10.96.0.1"
	serviceRange   = "10.96.0.0/24"
)

const namespaceFolder = "/run/netns"

// controlPlaneLinks configures the namespace of the control plane: a bridge for the nodes, and the address of the `kubernetes` service,
// which is the API server itself, so that no proxy is needed.
func controlPlaneLinks() string {
	return strings.Join([]string{
		"link set lo up",
		"link add br0 type bridge",
		"addr add " + apiAddress + "/24 dev br0",
		"link set br0 up",
		"addr add " + serviceAddress + "/32 dev lo",
	}, "\n") + "\n"
}

// nodeUplink connects node i's namespace to the bridge and routes its pods.
func nodeUplink(i int, namespace string) string {
	return fmt.Sprintf("link add v%[1]d type veth peer name eth0 netns %[2]s\nlink set v%[1]d master br0 up\nroute replace %[3]s via %[4]s dev br0\n",
		i, namespace, node.PodSubnet(i), node.Address(i))
}

func nodeLinks(i int) string {
	return fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s\n", node.Address(i), apiAddress)
}

func (c *Cluster) makeControlPlaneNetwork() error {
	if err := makeNamespace(c.namespace()); err != nil {
		return err
	}
	return ip(controlPlaneLinks(), "-n", c.namespace(), "-batch", "-")
}

func (c *Cluster) makeNodeNetwork(i int) error {
	if err := makeNamespace(c.nodeNamespace(i)); err != nil {
		return err
	}
	// The kernel removes the links of a deleted namespace a little later; links of an earlier boot must not conflict.
	_ = ip("", "-n", c.namespace(), "link", "del", fmt.Sprintf("v%d", i))
	if err := ip(nodeUplink(i, c.nodeNamespace(i)), "-n", c.namespace(), "-batch", "-"); err != nil {
		return err
	}
	return ip(nodeLinks(i), "-n", c.nodeNamespace(i), "-batch", "-")
}

// makeNamespace creates a named network namespace and replaces an existing one.
func makeNamespace(name string) error {
	if err := deleteNamespace(name); err != nil {
		return err
	}
	return ip("", "netns", "add", name)
}

// deleteNamespace deletes the name; open references keep the namespace.
func deleteNamespace(name string) error {
	path := filepath.Join(namespaceFolder, name)
	if err := unix.Access(path, unix.F_OK); err != nil {
		return nil
	}
	return ip("", "netns", "del", name)
}

// removeNamespaceFolder undoes a mount by ip for the machine's first named namespace: a mount of the folder onto itself. A folder in use
// stays.
func removeNamespaceFolder() {
	if entries, err := os.ReadDir(namespaceFolder); err == nil && len(entries) == 0 {
		_ = unix.Unmount(namespaceFolder, unix.UMOUNT_NOFOLLOW)
		_ = os.Remove(namespaceFolder)
	}
}

// namespaces lists the network namespaces of the cluster.
func (c *Cluster) namespaces() []string {
	var names []string
	for _, pattern := range []string{c.namespace(), c.namespace() + "_*"} {
		found, _ := filepath.Glob(filepath.Join(namespaceFolder, pattern))
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

func ip(batch string, args ...string) error {
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
