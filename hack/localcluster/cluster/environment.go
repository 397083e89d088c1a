//go:build linux

package cluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/node"
)

// Environment prints shell assignments with which any outside tool can attach to the cluster. Paths are paths of the host.
func (c *Cluster) Environment(out io.Writer) error {
	s, err := c.Load()
	if err != nil {
		return err
	}
	var names []string
	for i := range s.Nodes {
		names = append(names, node.Name(i))
	}
	assign := func(name, value string) { fmt.Fprintf(out, "export %s=%s\n", name, quote(value)) }
	assign("PRISM_CLUSTER", c.Name)
	assign("KUBECONFIG", c.Kubeconfig())
	programs := c.programs()
	if self, err := os.Executable(); err == nil {
		programs += ":" + filepath.Dir(self) // kubectl finds plugins that are built beside localcluster
	}
	fmt.Fprintf(out, "export PATH=%s:\"$PATH\"\n", quote(programs))
	assign("PRISM_NODES", strings.Join(names, " "))
	for i := range s.Nodes {
		m := c.machine(i, s)
		prefix := fmt.Sprintf("PRISM_NODE_%d_", i)
		pid := find(c.nodeSpec(m))
		if pid == 0 {
			return fmt.Errorf("node %s of cluster %s does not run: start it with `localcluster up --name %s`", m.Name, c.Name, c.Name)
		}
		assign(prefix+"NAME", m.Name)
		assign(prefix+"PID", fmt.Sprint(pid))
		assign(prefix+"ADDRESS", node.Address(i))
		assign(prefix+"ROOT", fmt.Sprintf("/proc/%d/root", pid))
		assign(prefix+"STATE", m.StateDir())
		assign(prefix+"KUBELET_PLUGINS", filepath.Join(m.KubeletDir(), "plugins"))
		assign(prefix+"KUBELET_REGISTRY", filepath.Join(m.KubeletDir(), "plugins_registry"))
		assign(prefix+"CDI", fmt.Sprintf("/proc/%d/root/run/cdi", pid))
	}
	return nil
}

// quote quotes any text as one word of a shell.
func quote(text string) string {
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func special(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,", r)
}
