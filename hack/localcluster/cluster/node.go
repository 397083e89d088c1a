//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// The services of a node, by their names in commands.
const (
	kubelet    = "kubelet"
	containerd = "containerd"
)

const containerdSocket = "/run/containerd/containerd.sock"

func (c *Cluster) nodeSpec(m node.Machine) string { return filepath.Join(m.Dir, "init.json") }

// nodeInit is the spec of the node's first process.
func (c *Cluster) nodeInit(m node.Machine) Spec {
	return Spec{
		Node: &m, Control: m.Control(), Log: m.BootLog(),
		Services: []supervise.Service{
			{
				Name: containerd, Args: m.ContainerdArgs(), Log: m.Log(containerd), Probe: supervise.Probe{Socket: containerdSocket},
			},
			{
				Name: kubelet, Args: m.KubeletArgs(c.kubeconfig(m.Name)), Log: m.Log(kubelet),
				Probe: supervise.Probe{URL: "http://127.0.0.1:10248/healthz"},
			},
		},
	}
}

// enter is the command line that runs a program in the node's namespaces, like a child of its first process.
func (c *Cluster) enter(m node.Machine, args ...string) ([]string, error) {
	pid := find(c.nodeSpec(m))
	if pid == 0 {
		return nil, fmt.Errorf("node %s of cluster %s does not run: start it with `localcluster up --name %s`", m.Name, c.Name, c.Name)
	}
	line := []string{"nsenter", "-t", fmt.Sprint(pid), "-m", "-u", "-i", "-n", "-p", "--", "env"}
	return append(append(line, m.Environment()...), args...), nil
}

// importImage imports the images of an archive into the node. The archive is read here, because the node may not see it.
func (c *Cluster) importImage(ctx context.Context, m node.Machine, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	defer file.Close()
	line, err := c.enter(m, "ctr", "--address", containerdSocket, "-n", "k8s.io", "images", "import", "--local", "-")
	if err != nil {
		return err
	}
	if out, err := run(ctx, file, line); err != nil {
		return fmt.Errorf("loading %s into node %s: %w: %s", filepath.Base(archive), m.Name, err, out)
	}
	return nil
}

func run(ctx context.Context, stdin io.Reader, line []string) (string, error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}
