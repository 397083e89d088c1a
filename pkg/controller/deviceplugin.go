package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// GPUResource says whether whole GPUs get the extended resource name nvidia.com/gpu.
type GPUResource string

// The values of GPUResource; the zero value means Auto.
const (
	// GPUResourceAuto: unless a node has that capacity from a device plugin when the name would be given. A name that was given stays.
	GPUResourceAuto   GPUResource = "Auto"
	GPUResourceAlways GPUResource = "Always"
	GPUResourceNever  GPUResource = "Never"
)

const (
	// capacityInterval is the time between two checks of all nodes. It is as long as a kubelet keeps the capacity of a device plugin
	// that has stopped.
	capacityInterval = 5 * time.Minute
	// nodePage bounds how many Nodes are in memory at once.
	nodePage = 250
)

// Capacity is what the last check of the nodes found of nvidia.com/gpu.
type Capacity struct {
	// Node has it from a device plugin; empty: none has. There may be others.
	Node string
	// Recent: the check before found a node, and this one none. A device plugin that is restarted looks so.
	Recent bool
}

// nodeCheck is the last check.
type nodeCheck struct {
	at    time.Time
	found Capacity
}

// capacity returns what the last check found, and after how long the next one is due. It checks where it is due now. Nodes are listed
// in pages, and not watched: a cluster has thousands, each of which is written every few minutes.
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

// devicePluginNode finds a node with nvidia.com/gpu, empty where there is none. Devices of DRA drivers do not count in a Node's status.
func (r *Reconciler) devicePluginNode(ctx context.Context) (string, error) {
	for next := ""; ; {
		var page corev1.NodeList
		if err := r.Direct.List(ctx, &page, client.Limit(nodePage), client.Continue(next)); err != nil {
			return "", fmt.Errorf("checking which nodes have %s from a device plugin: %w", wholeGPU, err)
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

// leftToDevicePlugin reports whether nvidia.com/gpu is left to a device plugin. A name that was given stays, as pods may be waiting for it:
// the scheduler takes the capacity of a node that has some, and DRA devices on the others.
func (p *planning) leftToDevicePlugin(given bool) bool {
	if p.GPUResource == GPUResourceAlways || p.GPUResource == GPUResourceNever {
		return false
	}
	node := p.Capacity.Node
	switch {
	case node == "" && !p.Capacity.Recent:
		return false
	case given && node != "":
		p.note(ReasonDevicePluginCapacity, "nodes such as %s have %s from a device plugin, and it is the name of whole GPUs of driver %s too: pods get what "+
			"the node has that they run on; remove the device plugin, or set the chart value controller.gpuExtendedResource to Never, or to Always if both are wanted",
			node, wholeGPU, p.Driver)
	case node != "":
		p.note(ReasonDevicePluginCapacity, "%s is left to the device plugin of nodes such as %s: whole GPUs of driver %s cannot be requested by it; they can some "+
			"minutes after the last device plugin was removed, and at once with the chart value controller.gpuExtendedResource=Always", wholeGPU, node, p.Driver)
	}
	return !given
}
