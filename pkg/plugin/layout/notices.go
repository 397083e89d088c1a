package layout

import (
	"slices"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// notices reports the reasons for which the configuration is not applied, each once until it changes.
type notices struct {
	events   events.Recorder
	reported map[advice]string
	// wrong holds the present problems of the configuration.
	wrong map[side]problem
}

// advice is a problem for an administrator: the reason of its Events, and the GPU that it is about, empty for none.
type advice struct {
	reason string
	gpu    gpu.UUID
}

// side is an aspect of the configuration that may be invalid.
type side string

const (
	sideText side = "text"
	sideGPUs side = "gpus"
)

type problem struct{ reason, note string }

const notApplied = "The node's configuration is not applied"

// warn reports advice.
func (n *notices) warn(about advice, note string) {
	if n.reported[about] == note {
		return
	}
	n.reported[about] = note
	klog.Background().Info(notApplied, "reason", note)
	n.events.Warn(about.reason, events.ActionConfigure, note)
}

// unmatched mentions hardware that the configuration names and the node may lack; the text is empty if there is none. It is no problem,
// because one configuration can be for many nodes.
func (n *notices) unmatched(what string) {
	about := advice{reason: events.NodeConfigUnmatched}
	if what == "" {
		n.clear(about)
		return
	}
	if n.reported[about] == what {
		return
	}
	n.reported[about] = what
	klog.Background().Info("The node lacks what its configuration names", "lacking", what)
	n.events.Normal(about.reason, events.ActionConfigure, "Parts of the node's configuration match nothing on this node: "+what)
}

// clear drops advice that does not hold any more: it is reported again when it holds again.
func (n *notices) clear(about advice) { delete(n.reported, about) }

// changed reports that GPUs are advertised otherwise because the cluster's features have changed.
func (n *notices) changed(now features) {
	is := map[Support]string{Supported: "supported", Unsupported: "not supported", Unknown: "unknown"}
	n.events.Normal(events.ClusterFeaturesChanged, events.ActionConfigure, "GPUs are advertised otherwise, because features of the cluster have changed: shared counters "+
		"are "+is[now.counters]+", shares beside other devices of a GPU are "+is[now.shares]+", device taints are "+is[now.taints])
}

// invalid reports the problem of a side of the configuration.
func (n *notices) invalid(what side, reason, note string) {
	now := problem{reason: reason, note: note}
	if n.wrong[what] == now {
		return
	}
	n.wrong[what] = now
	klog.Background().Info(notApplied, "reason", note)
	n.events.Warn(reason, events.ActionConfigure, note)
}

// valid records that a side of the configuration is valid, and reports it when the others are too.
func (n *notices) valid(what side) {
	if _, was := n.wrong[what]; !was {
		return
	}
	delete(n.wrong, what)
	if len(n.wrong) == 0 {
		klog.Background().Info("The node's configuration is valid again")
		n.events.Normal(events.NodeConfigAccepted, events.ActionConfigure,
			"The node's configuration is valid again; GPUs change to it as their devices are released")
	}
}

// problems lists the reasons for which the configuration is not applied, sorted.
func (n *notices) problems() []string {
	var reasons []string
	for _, p := range n.wrong {
		reasons = append(reasons, p.reason)
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}
