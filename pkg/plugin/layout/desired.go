package layout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
)

// state holds the inputs of a layout other than the inventory's view and the claims' records.
type state struct {
	node         string
	config       *configuration
	capabilities capabilities
	rollout      *Rollout
	notices      *notices
	// modes apply to every GPU, in addition to its configured modes.
	modes []gpu.Mode
}

func newState(options *Options) *state {
	n := &notices{events: options.Events, reported: map[advice]string{}, wrong: map[side]problem{}}
	return &state{
		node: options.NodeName, config: newConfiguration(options.NodeName, n), capabilities: newCapabilities(), rollout: NewRollout(options.NodeName), notices: n,
		modes: options.Modes,
	}
}

// compose computes the layout for a view and the node's records, and sets the target layouts of the GPUs.
func (s *state) compose(view *inventory.View, records []*checkpoint.Record, now time.Time) (gpu.Layout, error) {
	desired, layout, parted := s.desired(view).WithModes(view.Node.GPUs, s.modes...), gpu.Layout{}, false
	s.rollout.Retain(view.Node.GPUs)
	for i := range view.Node.GPUs {
		g := &view.Node.GPUs[i]
		to := desired[g.UUID]
		as, transition := s.rollout.Aim(g, to, Facts{Records: records, Limit: s.capabilities.limit, Now: now})
		logTransition(g, transition, s.rollout)
		if s.capabilities.reduced(to) {
			s.notices.warn(advice{reason: events.SharedCountersUnsupported}, "The scheduler of a Kubernetes before 1.36.2 does not count allocated shares "+
				"of a GPU when it decides about its other devices, so a GPU with mode timeslice or mps is advertised in one mode: whole where its "+
				"configuration allows that, else in time-sliced shares, else in MPS shares; configure such GPUs with one of these modes alone, or upgrade Kubernetes")
		}
		if as.Disjoint {
			as = disjoint(s.node, g, as, records)
		}
		s.adviseMode(g, as)
		as.MemoryBytes = to.MemoryBytes
		as.Withheld = withheld(s.node, g, of(g, as), records)
		layout[g.UUID] = as
		parted = parted || as.Partitioned()
	}
	if parted && s.capabilities.counters == Unknown {
		return nil, errCounters
	}
	return layout, nil
}

// desired returns the configured layout of a view's GPUs. A configuration that was invalid since the start is without a valid version here,
// so the layouts stay as they were before the start.
func (s *state) desired(view *inventory.View) gpu.Layout {
	if !s.config.known {
		return maps.Clone(s.rollout.current)
	}
	layout, refused, err := nodeconfig.Resolve(s.config.last, view.Node)
	s.notices.unmatched(nodeconfig.Absent(s.config.last, view.Node))
	if s.config.result.fits = err == nil; s.config.result.fits {
		s.notices.valid(sideGPUs)
		return layout
	}
	s.notices.invalid(sideGPUs, events.NodeConfigInvalid, fmt.Sprintf("%s: %v", partly(view.Node.GPUs, layout, refused), err))
	for _, id := range refused {
		if target, known := s.rollout.Target(id); known {
			layout[id] = target
		}
	}
	return layout
}

// partly describes how the GPUs of a partly invalid configuration are advertised. The text must change only when that changes, so it does
// not name the refused GPUs that are new.
func partly(gpus []gpu.GPU, layout gpu.Layout, refused []gpu.UUID) string {
	isRefused := func(g *gpu.GPU) bool { return slices.Contains(refused, g.UUID) }
	isNothing := func(g *gpu.GPU) bool {
		return !isRefused(g) && !layout.Of(g).Partitioned() && len(layout.Of(g).Devices(g)) == 0
	}
	said := sentence(gpus, isRefused, "stays as it was advertised, whole if it is new", "stay as they were advertised, whole if they are new") +
		sentence(gpus, isNothing, "is without any device", "are without any device")
	if said == "" {
		return "All else is applied"
	}
	return said + "all else is applied"
}

// sentence is a sentence about some GPUs, with the separator after it: "GPU 1 is …; ", "GPUs 1, 2 are …; ". It is empty without any.
func sentence(gpus []gpu.GPU, so func(*gpu.GPU) bool, one, several string) string {
	var indices []string
	for i := range gpus {
		if so(&gpus[i]) {
			indices = append(indices, strconv.Itoa(gpus[i].Index))
		}
	}
	switch len(indices) {
	case 0:
		return ""
	case 1:
		return "GPU " + indices[0] + " " + one + "; "
	default:
		return "GPUs " + strings.Join(indices, ", ") + " " + several + "; "
	}
}

// adviseMode reports a GPU without devices because its MIG mode differs from the mode that the configuration needs.
func (s *state) adviseMode(g *gpu.GPU, as gpu.Modes) {
	about := advice{events.MIGModeMismatch, g.UUID}
	if !modeMismatch(g, as) {
		s.notices.clear(about)
		return
	}
	requests, mode := "MIG devices", 1
	if g.MIG.Mode.Enabled {
		requests, mode = "the whole GPU", 0
	}
	s.notices.warn(about, fmt.Sprintf("GPU %d (%s, %s) has no device: its configuration requests %s, and the MIG mode of this "+
		"product changes only with a reset; drain the node, run nvidia-smi -i %d -mig %d and nvidia-smi --gpu-reset -i %d", g.Index,
		g.Product.Name, g.UUID, requests, g.Index, mode, g.Index))
}

// modeMismatch reports whether a GPU is without devices because of its MIG mode. If the mode is right, an instance of the administrator may
// leave no free placement.
func modeMismatch(g *gpu.GPU, as gpu.Modes) bool {
	if g.MIG == nil || !g.MIG.Mode.NeedsReset || len(as.Devices(g)) > 0 {
		return false
	}
	return !g.MIG.Mode.Enabled || len(as.MIG) == 0 && !as.Static
}

func logTransition(g *gpu.GPU, t Transition, r *Rollout) {
	switch t {
	case Began:
		klog.Background().Info("GPU layout change pending", "gpu", g.UUID, "leaving", len(r.changes[g.UUID].leaving))
	case Ended:
		klog.Background().Info("GPU is advertised as the node's configuration says", "gpu", g.UUID)
	case Unchanged:
	}
}
