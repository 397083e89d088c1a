package classes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// GPUResource determines whether whole GPUs get the extended resource name nvidia.com/gpu.
type GPUResource string

// The values of GPUResource; the zero value means Auto.
const (
	// GPUResourceAuto sets the name unless a device plugin provides that capacity on a node at that time. A name that was set stays.
	GPUResourceAuto   GPUResource = "Auto"
	GPUResourceAlways GPUResource = "Always"
	GPUResourceNever  GPUResource = "Never"
)

const (
	// capacityInterval is the time between two checks of all nodes: the kubelet keeps the capacity of a stopped device plugin that long.
	capacityInterval = 5 * time.Minute
	// nodePage limits the number of Nodes in memory.
	nodePage = 250
)

// Capacity is the result of the last check for capacity of nvidia.com/gpu from device plugins.
type Capacity struct {
	// Node is one node with such capacity; empty if there is none.
	Node string
	// Recent is true if only the check before found a node, as during a restart of a device plugin.
	Recent bool
}

// nodeCheck is the last check.
type nodeCheck struct {
	at    time.Time
	found Capacity
}

// capacity returns the result of the last check and the time until the next, and checks now if one is due. Nodes are listed in pages and
// not watched, because a cluster can have thousands, and each is updated every few minutes.
func (r *Reconciler) capacity(ctx context.Context) (Capacity, time.Duration, error) {
	if r.GPUResource == GPUResourceAlways || r.GPUResource == GPUResourceNever {
		return Capacity{}, 0, nil
	}
	now := time.Now()
	if r.Now != nil {
		now = r.Now()
	}
	if due := r.nodes.at.Add(capacityInterval).Sub(now); !r.nodes.at.IsZero() && due > 0 {
		return r.nodes.found, due, nil
	}
	node, err := r.devicePluginNode(ctx)
	if err != nil {
		return Capacity{}, 0, err
	}
	r.nodes = nodeCheck{at: now, found: Capacity{Node: node, Recent: node == "" && r.nodes.found.Node != ""}}
	return r.nodes.found, capacityInterval, nil
}

// devicePluginNode returns a node with nvidia.com/gpu, empty without one. DRA devices are not in a Node's status.
func (r *Reconciler) devicePluginNode(ctx context.Context) (string, error) {
	for next := ""; ; {
		var page corev1.NodeList
		if err := r.Direct.List(ctx, &page, client.Limit(nodePage), client.Continue(next)); err != nil {
			return "", fmt.Errorf("listing nodes with %s from a device plugin: %w", wholeGPU, err)
		}
		for i := range page.Items {
			for _, resources := range []corev1.ResourceList{page.Items[i].Status.Capacity, page.Items[i].Status.Allocatable} {
				if quantity := resources[wholeGPU]; quantity.Sign() > 0 {
					return page.Items[i].Name, nil
				}
			}
		}
		if next = page.Continue; next == "" {
			return "", nil
		}
	}
}

// leftToDevicePlugin reports whether nvidia.com/gpu is not set because of a device plugin. A name that was set stays, because pods may wait
// for it: the scheduler uses the capacity of nodes that provide it, and DRA devices on the others.
func (p *planner) leftToDevicePlugin(set bool) bool {
	if p.GPUResource == GPUResourceAlways || p.GPUResource == GPUResourceNever {
		return false
	}
	node := p.Capacity.Node
	switch {
	case node == "" && !p.Capacity.Recent:
		return false
	case set && node != "":
		p.problemOn(node, "Nodes such as %s provide %s through a device plugin, and it is also the extended resource name of whole GPUs of driver %s: "+
			"pods get the devices of the node that they are scheduled to; remove the device plugin, or set the chart value controller.gpuExtendedResource to "+
			"Never, or to Always to keep both",
			node, wholeGPU, p.Driver)
	case node != "":
		p.problemOn(node, "Nodes such as %s provide %s through a device plugin, so it is not the extended resource name of whole GPUs of driver %s; "+
			"remove the device plugin (the name is set some minutes later), or set the chart value controller.gpuExtendedResource to Always", node, wholeGPU, p.Driver)
	}
	return !set
}
