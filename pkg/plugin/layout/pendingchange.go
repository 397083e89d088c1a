package layout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// remindAfter is how long a GPU's devices may be in use before it is reported that its layout change waits for them. It may wait for ever:
// the leaving devices may be allocated again and again to claims that tolerate the taint.
const remindAfter = 10 * time.Minute

// findClaims is the command that shows which claims have which devices.
const findClaims = "kubectl get resourceclaims -A -o custom-columns=" +
	"'NAMESPACE:.metadata.namespace,NAME:.metadata.name,DEVICES:.status.allocation.devices.results[*].device'"

// remind reports the GPUs whose layout changes wait too long for devices in use. Each change is reported once, and all changes of one edit
// are in one Event. It names no claim: readers of a Node's Events may lack access to the claims of every namespace.
func (d *drain) remind(now time.Time) {
	var waiting []string
	node := d.output.latest.Load().Node
	for i := range node.GPUs {
		g := &node.GPUs[i]
		c, changing := d.state.rollout.changes[g.UUID]
		if !changing || c.reminded || now.Sub(c.begun) < remindAfter || len(c.inUse()) == 0 {
			continue
		}
		c.reminded = true
		waiting = append(waiting, fmt.Sprintf("GPU %d (%s)", g.Index, gpu.Whole{GPU: g}.Name()))
		klog.Background().Info("GPU layout change pending: waiting for devices to be released", "gpu", g.UUID, "devices", c.inUse())
	}
	if len(waiting) == 0 {
		return
	}
	d.options.Events.Warn(events.GPULayoutChangePending, events.ActionConfigure, fmt.Sprintf("GPU layout change pending for %d minutes: waiting for devices of %s "+
		"to be released. Running pods keep them, and claims that tolerate the config-change taint can be allocated them again, which delays "+
		"the change for ever. Find the claims by the names of their devices: %s", int(remindAfter.Minutes()), strings.Join(waiting, ", "), findClaims))
}

// inUse lists the leaving devices that are known to be in claims, as "<pool> <device>", sorted.
func (c *change) inUse() []string {
	var used []string
	for _, at := range slices.Concat(c.recorded, c.allocated) {
		used = append(used, at.Pool+" "+string(at.Device))
	}
	slices.Sort(used)
	return slices.Compact(used)
}
