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
	"github.com/prism-gpu/prism/pkg/plugin/publish"
)

// Conflicts detects other components that allocate the node's GPUs: a device plugin, or another DRA driver. If both allocate a GPU, two
// pods share it without isolation.
type Conflicts struct {
	// Sockets lists the sockets in a directory of the host whose names match a pattern.
	Sockets func(dir, pattern string) ([]string, error)
	// KubeletPlugins is the kubelet's directory of DRA drivers. The directory of device plugins is next to it.
	KubeletPlugins string
	// DriverName is the name of this driver, whose own sockets are no conflict.
	DriverName string
	// Former reports whether this driver is also registered under that earlier name, whose sockets are no conflict either. May be nil.
	Former func(driverName string) bool
	// Taints reports whether the API server stores device taints. It is called at the start of a conflict, and again as long as it fails.
	Taints func(ctx context.Context) (bool, error)
	// Set is called at every change with the conflict, and with whether taints keep new claims away. If they do not, or if this is unknown,
	// no device may be published. At the end of a conflict taints is false, without a meaning. If the API server did not answer at the
	// start of a conflict, Set is called again with taints once it answers that it stores them, even after the end of the conflict.
	Set    func(with publish.Conflict, taints bool)
	Events events.Recorder

	last conflict
	// unanswered: Taints has failed in the last conflict, and is called again when retry is due.
	unanswered bool
	retry      backoff.Backoff
	current    atomic.Value // a publish.Conflict, for Withheld
}

// conflict is a conflict with the sockets that show it; the zero value is no conflict.
type conflict struct {
	with  publish.Conflict
	where string
}

// otherDriver is the name of NVIDIA's DRA driver for GPUs.
const otherDriver = "gpu.nvidia.com"

// devicePlugins matches the sockets of device plugins for GPUs: nvidia-gpu.sock and similar names of NVIDIA's, nvidiaGPU-<time>.sock of
// GKE's. Other sockets with NVIDIA's name belong to device plugins for network cards: nvidia.com_hostdev.sock.
const devicePlugins = `nvidia[G\-]*.sock`

// Restarts remove and create sockets, so they are listed every checkInterval. If the API server does not answer whether it stores taints,
// it is asked again after checkInterval, then after twice as long each time up to taintsAskMax. taintsTimeout limits one call.
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

// Withheld returns why claims that are not prepared yet get no GPU, nil without a conflict. Taints do not keep all claims away: a claim may
// have been allocated before, it may tolerate the taint, and a scheduler may not support taints. It does not block.
func (c *Conflicts) Withheld() error {
	with, _ := c.current.Load().(publish.Conflict)
	if with == "" {
		return nil
	}
	return fmt.Errorf("the GPUs of the node are withheld: %s allocates them too; the administrator must remove one of the two from the node (see the "+
		"Event AllocationConflict of the Node)", named(with))
}

// Check lists the sockets once. If they cannot be listed, the conflict does not change.
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

// askAgain asks whether taints are stored, if this is unknown and a retry is due.
func (c *Conflicts) askAgain(ctx context.Context) {
	if c.unanswered && c.retry.Due(time.Now()) && c.taints(ctx) {
		c.Set(c.last.with, true)
	}
}

// taints reports whether the API server stores taints; false if it does not answer. Then it schedules a retry.
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
