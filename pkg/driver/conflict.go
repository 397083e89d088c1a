package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/publish"
)

// Conflicts finds what else hands out the node's GPUs: NVIDIA's device plugin or another DRA driver for them. Who gets a GPU from
// one of them does not know of the other.
type Conflicts struct {
	// Sockets lists the sockets of a directory of the host whose names match a pattern.
	Sockets func(dir, pattern string) ([]string, error)
	// KubeletPlugins is the kubelet's directory of DRA drivers; that of device plugins is beside it.
	KubeletPlugins string
	// DriverName is our own, which is no conflict.
	DriverName string
	// Set is told what was found, at every change.
	Set    func(publish.Conflict)
	Events NodeEvents

	last conflict
}

// conflict is what was found, and where; zero: nothing.
type conflict struct {
	with  publish.Conflict
	where string
}

// otherDriver is the name of NVIDIA's DRA driver for GPUs.
const otherDriver = "gpu.nvidia.com"

// devicePlugins are the sockets of device plugins for GPUs: NVIDIA's is nvidia-gpu.sock and the like, GKE's own nvidiaGPU-<time>.sock.
// Others of NVIDIA's name hand out network cards: nvidia.com_hostdev.sock.
const devicePlugins = `nvidia[G\-]*.sock`

// conflictLook is how often it is looked: sockets come and go with restarts.
const conflictLook = 5 * time.Second

// Run looks until the context ends.
func (c *Conflicts) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(conflictLook):
			c.Look(ctx)
		}
	}
}

// Look looks once. What cannot be looked at changes nothing.
func (c *Conflicts) Look(ctx context.Context) {
	now, err := c.find()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Nobody knows whether something else hands out the GPUs")
		return
	}
	if now == c.last {
		return
	}
	before := c.last
	c.last = now
	c.Set(now.with)
	if now.with == "" {
		c.Events.Normal("ConflictEnded", "Look", fmt.Sprintf("Nothing else hands out the GPUs any more: %s is gone", before.where))
		return
	}
	c.Events.Warn("Conflict", "Look", fmt.Sprintf("New claims get no GPU of this node: %s hands them out too, as %s shows; remove it from the "+
		"node, or keep Prism off it with kubeletPlugin.affinity of the chart", named(now.with), now.where))
}

func (c *Conflicts) find() (conflict, error) {
	found, err := c.Sockets(filepath.Join(filepath.Dir(c.KubeletPlugins), "device-plugins"), devicePlugins)
	if err != nil {
		return conflict{}, err
	}
	if len(found) > 0 {
		return conflict{with: publish.ConflictDevicePlugin, where: strings.Join(found, ", ")}, nil
	}
	if c.DriverName == otherDriver {
		return conflict{}, nil
	}
	found, err = c.Sockets(filepath.Join(c.KubeletPlugins, otherDriver), "*.sock")
	if err != nil || len(found) == 0 {
		return conflict{}, err
	}
	return conflict{with: publish.ConflictDRADriver, where: strings.Join(found, ", ")}, nil
}

func named(with publish.Conflict) string {
	if with == publish.ConflictDRADriver {
		return "the DRA driver " + otherDriver
	}
	return "a device plugin"
}
