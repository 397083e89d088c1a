//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prism-gpu/prism/hack/localcluster/cgroup"
	"github.com/prism-gpu/prism/hack/localcluster/image"
	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/report"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// runSpace is the disk space of a cluster in the state folder.
const runSpace = 1 << 30

// readyLimit limits the wait for the API server, a node or the default service account.
const readyLimit = 10 * time.Minute

// Up starts the cluster, or its parts that do not run, and returns when pods can be created. Zero values of want mean the cluster's current
// values, or the defaults.
func (c *Cluster) Up(ctx context.Context, want Settings, progress *report.Progress) error {
	s, err := c.resolve(want)
	if err != nil {
		return err
	}
	images, err := c.prepare(ctx, s, progress)
	if err != nil {
		return err
	}
	unlock, err := lock(c.Dir, progress)
	if err != nil {
		return err
	}
	defer unlock()
	// Resolved again: another command may have created the cluster in the meantime.
	if s, err = c.resolve(want); err != nil {
		return err
	}
	if c.running(s) {
		progress.Line("cluster %s is already running: export KUBECONFIG=%s", c.Name, c.Kubeconfig())
		return nil
	}
	if err := c.lay(&s, progress); err != nil {
		return err
	}
	if err := c.boot(ctx, s, images, progress); err != nil {
		return err
	}
	progress.Line("cluster %s is up: export KUBECONFIG=%s", c.Name, c.Kubeconfig())
	return nil
}

// resolve merges the requested settings with the settings of the cluster.
func (c *Cluster) resolve(want Settings) (Settings, error) {
	have, err := c.Load()
	if errors.Is(err, ErrNotThere) {
		if want.Kubernetes == "" {
			want.Kubernetes = parts.KubernetesVersion
		}
		if want.Nodes == 0 {
			want.Nodes = 1
		}
		return want, want.check()
	}
	if err != nil {
		return have, err
	}
	differs := func(what string, have, want any) error {
		return fmt.Errorf("cluster %s has %s %v, not %v: run `localcluster down --name %s` first", c.Name, what, have, want, c.Name)
	}
	switch {
	case want.Kubernetes != "" && want.Kubernetes != have.Kubernetes:
		return have, differs("Kubernetes", have.Kubernetes, want.Kubernetes)
	case want.Nodes != 0 && want.Nodes != have.Nodes:
		return have, differs("nodes:", have.Nodes, want.Nodes)
	case want.Port != 0 && want.Port != have.Port:
		return have, differs("port", have.Port, want.Port)
	case len(want.BootCommands) > 0 && !slices.Equal(want.BootCommands, have.BootCommands):
		return have, differs("boot commands", have.BootCommands, want.BootCommands)
	case len(want.KubeletConfig) > 0 && !slices.Equal(want.KubeletConfig, have.KubeletConfig):
		return have, differs("kubelet configuration", have.KubeletConfig, want.KubeletConfig)
	}
	return have, nil
}

func (s Settings) check() error {
	if s.Nodes < 1 || s.Nodes > node.MaxNodes {
		return fmt.Errorf("%d nodes: want 1 to %d", s.Nodes, node.MaxNodes)
	}
	if s.Port < 0 || s.Port > 65535 {
		return fmt.Errorf("port %d: want 1 to 65535, or none to choose a free one", s.Port)
	}
	return parts.CheckKubernetes(s.Kubernetes)
}

// lay writes all inputs of the programs, and chooses the port.
func (c *Cluster) lay(s *Settings, progress *report.Progress) error {
	if err := parts.CheckSpace(c.Dir, runSpace, "XDG_STATE_HOME"); err != nil {
		return err
	}
	if s.Port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.Port = port
	}
	// A busy port is reported before anything is saved, so that the next attempt may name another one.
	if find(c.controlPlaneSpec()) == 0 {
		port, err := listen(s.Port)
		if err != nil {
			return err
		}
		port.Close()
	}
	// The settings are written first: while they exist, the removal of another cluster does not restore the sysctls.
	if err := c.save(*s); err != nil {
		return err
	}
	if err := saveSysctls(c.Root, progress); err != nil {
		return err
	}
	if err := c.linkPrograms(s.Kubernetes); err != nil {
		return err
	}
	if err := c.writeCredentials(*s); err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := c.machine(i, *s).WriteConfig(c.pki(), image.PauseName); err != nil {
			return err
		}
	}
	return nil
}

// linkPrograms creates the folder that comes first in PATH.
func (c *Cluster) linkPrograms(kubernetes string) error {
	if err := os.MkdirAll(c.programs(), 0o755); err != nil {
		return fmt.Errorf("making the folder of programs: %w", err)
	}
	for _, r := range parts.Table(kubernetes) {
		for _, program := range r.Programs() {
			link := c.Program(program)
			if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("linking %s: %w", program, err)
			}
			if err := os.Symlink(filepath.Join(c.Cache.Part(r), program), link); err != nil {
				return fmt.Errorf("linking %s: %w", program, err)
			}
		}
	}
	return nil
}

// boot starts the parts that do not run: the control plane and, concurrently, the nodes up to their container runtime; then the kubelets.
func (c *Cluster) boot(ctx context.Context, s Settings, images []string, progress *report.Progress) error {
	if err := c.startControlPlane(s); err != nil {
		return err
	}
	booted := make(chan error, s.Nodes)
	for i := range s.Nodes {
		go func() { booted <- c.startNode(ctx, i, s, images) }()
	}
	end := progress.Step("starting the control plane and %d node(s)", s.Nodes)
	err := c.startServices()
	for range s.Nodes {
		err = errors.Join(err, <-booted)
	}
	if err != nil {
		return err
	}
	end()
	defer progress.Step("waiting until pods can be created")()
	for i := range s.Nodes {
		if _, err := supervise.Send(c.machine(i, s).Control(), supervise.Launch, kubelet); err != nil {
			return err
		}
	}
	return c.awaitReady(ctx, s)
}

// awaitReady returns when all nodes are Ready in their current boot and the default service account exists.
func (c *Cluster) awaitReady(ctx context.Context, s Settings) error {
	api, err := c.api(s)
	if err != nil {
		return err
	}
	for i := range s.Nodes {
		if err := c.awaitNode(ctx, api, c.machine(i, s)); err != nil {
			return err
		}
	}
	return poll(ctx, "the default service account", func() error {
		return api.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}

func (c *Cluster) awaitNode(ctx context.Context, api *api, m node.Machine) error {
	bootID, err := m.BootID()
	if err != nil {
		return err
	}
	return poll(ctx, "node "+m.Name, func() error { return api.nodeReady(ctx, m.Name, bootID) })
}

// poll repeats the question until it returns no error, or the time is up.
func poll(ctx context.Context, what string, question func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		err := question()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startControlPlane starts the first process of the control plane unless it runs. Without it the nodes do not work either, because their
// network depends on its namespace.
func (c *Cluster) startControlPlane(s Settings) error {
	if find(c.controlPlaneSpec()) != 0 {
		return nil
	}
	if err := c.stopEverything(); err != nil {
		return err
	}
	port, err := listen(s.Port)
	if err != nil {
		return err
	}
	defer port.Close()
	if err := c.makeControlPlaneNetwork(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.controlPlaneDir(), 0o700); err != nil {
		return fmt.Errorf("making the folder of the control plane: %w", err)
	}
	err = spawn(c.controlPlaneSpec(), c.namespace(), c.controlPlane(), port)
	return err
}

func (c *Cluster) controlPlaneSpec() string { return filepath.Join(c.controlPlaneDir(), "init.json") }

// startServices starts the control plane's programs in their order.
func (c *Cluster) startServices() error {
	control := c.controlPlane().Control
	for _, step := range []struct {
		order   supervise.Order
		service string
	}{
		{supervise.Launch, etcd}, {supervise.Start, apiserver}, {supervise.Launch, controllerManager}, {supervise.Launch, scheduler},
	} {
		if _, err := supervise.Send(control, step.order, step.service); err != nil {
			return err
		}
	}
	return nil
}

// listen opens the loopback port for the cluster.
func listen(port int) (*os.File, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d on 127.0.0.1 is in use by another program: stop that program, or create the cluster with another --port", port)
	}
	if err != nil {
		return nil, fmt.Errorf("opening port %d on 127.0.0.1: %w", port, err)
	}
	defer listener.Close()
	return listener.(*net.TCPListener).File()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("choosing a free port on 127.0.0.1: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// startNode boots a node unless it runs, up to a container runtime with its images.
func (c *Cluster) startNode(ctx context.Context, i int, s Settings, images []string) error {
	m := c.machine(i, s)
	if find(c.nodeSpec(m)) == 0 {
		if err := c.makeNodeNetwork(i); err != nil {
			return err
		}
		if err := c.bootNode(m); err != nil {
			return err
		}
	}
	if _, err := supervise.Send(m.Control(), supervise.Start, containerd); err != nil {
		return err
	}
	// Also into a running node: an earlier start may have been interrupted before this.
	for _, image := range images {
		if err := c.importImage(ctx, m, image); err != nil {
			return err
		}
	}
	return nil
}

// bootNode starts the node's first process. It first removes control groups of containers of an earlier boot, because the kubelet would
// spend seconds on each.
func (c *Cluster) bootNode(m node.Machine) error {
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if err := cgroup.Remove(hierarchies, m.Group(), groupLimit); err != nil {
		return err
	}
	if err := cgroup.Create(hierarchies, m.Group()); err != nil {
		return err
	}
	if m.HostMounts, err = node.MountNamespace(); err != nil {
		return err
	}
	err = spawn(c.nodeSpec(m), c.nodeNamespace(m.Index), c.nodeInit(m), nil)
	return err
}

// groupLimit limits the wait for the processes of a killed node to leave their control groups.
const groupLimit = time.Minute
