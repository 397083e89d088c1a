//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/image"
	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/report"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// prepare installs and builds the parts of the cluster and returns the archives of the built-in images.
func (c *Cluster) prepare(ctx context.Context, s Settings, progress *report.Progress) ([]string, error) {
	if err := parts.InstallDebian(ctx, parts.RunPackages, progress); err != nil {
		return nil, err
	}
	if _, err := parts.Ensure(ctx, c.Cache, parts.Table(s.Kubernetes), progress); err != nil {
		return nil, err
	}
	return image.Builtin(ctx, c.Cache, progress)
}

// Component is a program of the cluster and its location.
type Component struct {
	name    string
	control string
	log     string
	machine *node.Machine
}

// Services of the control plane and of a node, by their names in commands.
var (
	controlPlaneServices = []string{etcd, apiserver, scheduler, controllerManager}
	nodeServices         = []string{containerd, kubelet}
)

// Component finds a component by the words of a command line: [NODE] COMPONENT. The node may be omitted if there is only one.
func (c *Cluster) Component(words []string) (Component, error) {
	s, err := c.Load()
	if err != nil {
		return Component{}, err
	}
	name := words[len(words)-1]
	if slices.Contains(controlPlaneServices, name) {
		if len(words) > 1 {
			return Component{}, fmt.Errorf("%s belongs to the control plane, not to a node: leave %s out", name, words[0])
		}
		return Component{name: name, control: c.controlPlane().Control, log: c.controlPlaneLog(name)}, nil
	}
	if name != "boot" && !slices.Contains(nodeServices, name) {
		return Component{}, fmt.Errorf("unknown component %q: the components are %s and, on a node, %s",
			name, strings.Join(controlPlaneServices, ", "), strings.Join(nodeServices, ", "))
	}
	if len(words) == 1 && s.Nodes > 1 {
		return Component{}, fmt.Errorf("cluster %s has %d nodes: name one, for example `%s %s`", c.Name, s.Nodes, node.Name(0), name)
	}
	words = append(words, name)
	if len(words) == 2 {
		words = []string{node.Name(0), name}
	}
	m, err := c.node(words[0], s)
	return Component{name: name, control: m.Control(), log: m.Log(name), machine: &m}, err
}

// node finds a node by its name.
func (c *Cluster) node(name string, s Settings) (node.Machine, error) {
	for i := range s.Nodes {
		if node.Name(i) == name {
			return c.machine(i, s), nil
		}
	}
	return node.Machine{}, fmt.Errorf("cluster %s does not have node %q: its nodes are %s to %s", c.Name, name, node.Name(0), node.Name(s.Nodes-1))
}

// Do starts, stops or restarts the component. A start returns when the component responds.
func (k Component) Do(order supervise.Order) error {
	_, err := supervise.Send(k.control, order, k.name)
	return err
}

// Log copies the component's log; with follow it continues until ctx ends.
func (k Component) Log(ctx context.Context, out io.Writer, follow bool) error {
	file, err := os.Open(k.log)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s has not written a log", k.name)
	}
	if err != nil {
		return fmt.Errorf("reading the log of %s: %w", k.name, err)
	}
	defer file.Close()
	return copyLog(ctx, out, file, follow)
}

// Reboot cuts the node's power and boots it again, with a new boot id. It returns when the node is Ready in its new boot.
func (c *Cluster) Reboot(ctx context.Context, name string, progress *report.Progress) error {
	s, err := c.Load()
	if err != nil {
		return err
	}
	m, err := c.node(name, s)
	if err != nil {
		return err
	}
	unlock, err := lock(c.Dir, progress)
	if err != nil {
		return err
	}
	defer unlock()
	defer progress.Step("rebooting node %s", name)()
	if pid := find(c.nodeSpec(m)); pid != 0 {
		if err := kill(pid); err != nil {
			return err
		}
	}
	if err := c.bootNode(m); err != nil {
		return err
	}
	if _, err := supervise.Send(m.Control(), supervise.Start, containerd); err != nil {
		return err
	}
	if _, err := supervise.Send(m.Control(), supervise.Launch, kubelet); err != nil {
		return err
	}
	api, err := c.api(s)
	if err != nil {
		return err
	}
	return c.awaitNode(ctx, api, m)
}

// LoadImage imports the images of an archive into every node.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	s, err := c.Load()
	if err != nil {
		return err
	}
	results := make(chan error, s.Nodes)
	for i := range s.Nodes {
		go func() { results <- c.importImage(ctx, c.machine(i, s), archive) }()
	}
	for range s.Nodes {
		err = errors.Join(err, <-results)
	}
	return err
}

// Enter returns the command line that runs a program in a node.
func (c *Cluster) Enter(name string, args []string) ([]string, error) {
	s, err := c.Load()
	if err != nil {
		return nil, err
	}
	m, err := c.node(name, s)
	if err != nil {
		return nil, err
	}
	return c.enter(m, args...)
}
