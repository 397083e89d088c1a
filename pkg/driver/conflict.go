package driver

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
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
	// Taints reports whether the API server keeps device taints. It is asked at the start of a conflict, and again as long as it fails.
	Taints func(ctx context.Context) (bool, error)
	// Set gets what was found, at every change, and whether taints can keep new claims away. Where they cannot, or as long as that is not
	// known, no device may be published.
	Set    func(with publish.Conflict, taints bool)
	Events NodeEvents

	last conflict
	// ask is when Taints is asked again, after wait; zero when it has answered.
	ask     time.Time
	wait    time.Duration
	current atomic.Value // of a publish.Conflict: what Withheld reports
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

// conflictLook is how often it is looked: sockets come and go with restarts. An API server that does not say whether it keeps taints is
// asked again after that, twice as long each time up to taintsAskMax; one question may take taintsTimeout.
const (
	conflictLook  = 5 * time.Second
	taintsAskMax  = time.Minute
	taintsTimeout = 2 * time.Second
)

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

// Withheld returns why claims that are not prepared yet get no GPU, nil without a conflict. Taints do not keep all of them away: a claim
// may have been allocated before, it may tolerate the taint, and a scheduler may not know taints.
func (c *Conflicts) Withheld() error {
	with, _ := c.current.Load().(publish.Conflict)
	if with == "" {
		return nil
	}
	return fmt.Errorf("the GPUs of the node are withheld: %s allocates them too; the node's administrator has to remove one of the two, as the "+
		"Event Conflict of the Node says", named(with))
}

// Look looks once. What cannot be looked at changes nothing.
func (c *Conflicts) Look(ctx context.Context) {
	now, err := c.find()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Nobody knows whether something else hands out the GPUs")
		return
	}
	if now == c.last {
		c.askAgain(ctx)
		return
	}
	before := c.last
	c.last, c.wait = now, 0
	c.current.Store(now.with)
	if now.with == "" {
		c.ask = time.Time{}
		c.Set("", true)
		c.Events.Normal(events.AllocationConflictResolved, events.ActionDetect, fmt.Sprintf("Nothing else hands out the GPUs any more: %s is gone", before.where))
		return
	}
	kept := c.taints(ctx)
	c.Set(now.with, kept)
	note := fmt.Sprintf("New claims get no GPU of this node: %s hands them out too, as %s shows; remove it from the "+
		"node, or keep Prism off it with kubeletPlugin.affinity of the chart", named(now.with), now.where)
	if !kept && c.ask.IsZero() {
		note += "; until then the node's ResourceSlices are empty, because the API server keeps no device taints (feature gate DRADeviceTaints)"
	}
	c.Events.Warn(events.AllocationConflict, events.ActionDetect, note)
}

// askAgain asks whether taints are kept where that is not known yet and due.
func (c *Conflicts) askAgain(ctx context.Context) {
	if c.ask.IsZero() || time.Now().Before(c.ask) {
		return
	}
	if c.taints(ctx) {
		c.Set(c.last.with, true)
	}
}

// taints tells whether the API server keeps taints, and notes when to ask again; false while that is not known.
func (c *Conflicts) taints(ctx context.Context) bool {
	asking, stop := context.WithTimeout(ctx, taintsTimeout)
	defer stop()
	kept, err := c.Taints(asking)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No device is published while something else allocates the GPUs", "reason", err.Error())
		c.wait = min(max(2*c.wait, conflictLook), taintsAskMax)
		c.ask = time.Now().Add(c.wait)
		return false
	}
	c.ask = time.Time{}
	return kept
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
