package health

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/backoff"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/publish"
)

// Conflicts detects other components that allocate the node's GPUs: NVIDIA's device plugin, or another DRA driver for them. A GPU that both
// allocate is shared by two pods without isolation.
type Conflicts struct {
	// Sockets lists the sockets of a directory of the host whose names match a pattern.
	Sockets func(dir, pattern string) ([]string, error)
	// KubeletPlugins is the kubelet's directory of DRA drivers; that of device plugins is beside it.
	KubeletPlugins string
	// DriverName is the name of this driver, whose own sockets are no conflict.
	DriverName string
	// Former reports whether this driver is registered under another name, whose sockets are no conflict either; nil: never.
	Former func(driverName string) bool
	// Taints reports whether the API server stores device taints. It is called at the start of a conflict, and again as long as it fails.
	Taints func(ctx context.Context) (bool, error)
	// Set is called with the conflict, at every change, and with whether taints keep new claims away. Where they do not, or as long as that
	// is unknown, no device may be published. The end of a conflict says nothing about taints: they are false then, and true once an API server
	// has answered that it stores them which had not answered during the conflict.
	Set    func(with publish.Conflict, taints bool)
	Events events.Recorder

	last conflict
	// unanswered: Taints has not answered in the last conflict, and is called again when retry is due.
	unanswered bool
	retry      backoff.Backoff
	current    atomic.Value // of a publish.Conflict: what Withheld reports
}

// conflict is a conflict and the sockets that show it; zero: none.
type conflict struct {
	with  publish.Conflict
	where string
}

// otherDriver is the name of NVIDIA's DRA driver for GPUs.
const otherDriver = "gpu.nvidia.com"

// devicePlugins are the sockets of device plugins for GPUs: NVIDIA's is nvidia-gpu.sock and the like, GKE's own nvidiaGPU-<time>.sock.
// Others with NVIDIA's name allocate network cards: nvidia.com_hostdev.sock.
const devicePlugins = `nvidia[G\-]*.sock`

// Sockets come and go with restarts, so they are listed every checkInterval. An API server that does not answer whether it stores taints is
// probed again after that, twice as long each time up to taintsAskMax; one call may take taintsTimeout.
const (
	checkInterval = 5 * time.Second
	taintsAskMax  = time.Minute
	taintsTimeout = 2 * time.Second
)

// Run checks until the context ends.
func (c *Conflicts) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(checkInterval):
			c.Check(ctx)
		}
	}
}

// Withheld returns why claims that are not prepared yet get no GPU, nil without a conflict. Taints do not keep all claims away: a claim
// may have been allocated before, it may tolerate the taint, and a scheduler may not know taints. It does not block.
func (c *Conflicts) Withheld() error {
	with, _ := c.current.Load().(publish.Conflict)
	if with == "" {
		return nil
	}
	return fmt.Errorf("the GPUs of the node are withheld: %s allocates them too; the administrator must remove one of the two from the node (see the "+
		"Event AllocationConflict of the Node)", named(with))
}

// Check lists the sockets once. Where they cannot be listed the conflict stays as it was.
func (c *Conflicts) Check(ctx context.Context) {
	now, err := c.find()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Sockets of other components that may allocate the GPUs were not listed")
		return
	}
	if now == c.last {
		c.askAgain(ctx)
		return
	}
	before := c.last
	c.last = now
	c.current.Store(now.with)
	if now.with == "" {
		c.Set("", false)
		c.Events.Normal(events.AllocationConflictResolved, events.ActionDetect, fmt.Sprintf("No other component allocates the GPUs any more: %s is gone", before.where))
		return
	}
	c.retry = backoff.Backoff{First: checkInterval, Max: taintsAskMax}
	stored := c.taints(ctx)
	c.Set(now.with, stored)
	note := fmt.Sprintf("New claims get no GPU of this node: %s allocates them too (%s exists); remove it from the "+
		"node, or exclude the node from Prism with the chart value kubeletPlugin.affinity", named(now.with), now.where)
	if !stored && !c.unanswered {
		note += "; until then the node's ResourceSlices are empty, because the API server stores no device taints (feature gate DRADeviceTaints)"
	}
	c.Events.Warn(events.AllocationConflict, events.ActionDetect, note)
}

// askAgain probes whether taints are stored, where that is unknown and a probe is due.
func (c *Conflicts) askAgain(ctx context.Context) {
	if c.unanswered && c.retry.Due(time.Now()) && c.taints(ctx) {
		c.Set(c.last.with, true)
	}
}

// taints reports whether the API server stores taints, and sets when to probe again; false while that is unknown.
func (c *Conflicts) taints(ctx context.Context) bool {
	asking, stop := context.WithTimeout(ctx, taintsTimeout)
	defer stop()
	stored, err := c.Taints(asking)
	if c.unanswered = err != nil; c.unanswered {
		klog.FromContext(ctx).V(2).Info("No device is published while another component allocates the GPUs", "reason", err.Error())
		c.retry.Defer(time.Now())
		return false
	}
	return stored
}

func (c *Conflicts) find() (conflict, error) {
	found, err := c.Sockets(filepath.Join(filepath.Dir(c.KubeletPlugins), "device-plugins"), devicePlugins)
	if err != nil {
		return conflict{}, err
	}
	if len(found) > 0 {
		return conflict{with: publish.ConflictDevicePlugin, where: strings.Join(found, ", ")}, nil
	}
	if c.DriverName == otherDriver || c.Former != nil && c.Former(otherDriver) {
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
