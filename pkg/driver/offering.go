package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/prepare"
)

// OfferingPorts is what an Offering works with.
type OfferingPorts struct {
	Inventory *inventory.Inventory
	// Read returns the node's configuration, nil where it has none.
	Read func(ctx context.Context) (*v1alpha1.NodeConfig, error)
	// Passing tells whether an error of Read is of the moment, so that nothing is known yet.
	Passing func(err error) bool
	// Watched: Reload is called at every change of what Read reads.
	Watched bool
	// Counters tells whether the API server keeps what keeps devices of one GPU apart. It is asked only where GPUs are offered in
	// parts.
	Counters func(ctx context.Context) (bool, error)
	// Shares tells whether the scheduler still counts the shares of a device that claims have when it decides about others of the GPU.
	// It is asked after Counters, where those are kept.
	Shares func(ctx context.Context) (bool, error)
	// Records lists the claims' records.
	Records func() ([]*checkpoint.Record, error)
	// Tainted lists what the API server has of this node's devices, and of each whether it is tainted as leaving.
	Tainted func(ctx context.Context) (map[gpu.PoolDevice]bool, error)
	// Allocated reads a page of the cluster's claims; the Driver of the query is empty.
	Allocated func(ctx context.Context, query kube.AllocatedQuery) (*kube.AllocatedPage, error)
	// Saved keeps what is offered over restarts.
	Saved  SavedLayout
	Events NodeEvents
	// NodeName is the name of the pool of whole GPUs.
	NodeName string
}

// Offering is what the node offers: what it has, and what its configuration makes of that. A GPU that claims hold keeps offering
// what they were given, from the same pool, until it is free: see transition.
type Offering struct {
	ports OfferingPorts

	mu     sync.Mutex
	config configuration
	// counters and taints are whether the API server keeps them; counters are nil while that is not known.
	counters *bool
	forgets  bool // the scheduler does not count shares
	untaints bool
	unprobed int           // the tries to find out about counters
	wanted   chan struct{} // asks Run to look at once
	asked    bool
	seen     *inventory.View
	layout   gpu.Layout
	going    transition
	drain    draining
	told     map[advice]string // what people were told of it, as long as it is so
}

// The configuration is read again after rereadFirst, twice as long each time up to rereadMax. While a GPU is to be offered otherwise
// it is looked at every drainLook.
const (
	rereadFirst = time.Second
	rereadMax   = 10 * time.Second
	drainLook   = time.Second
	// patience is after how many failures the administrator is told of what may pass by itself.
	patience = 6
)

// NewOffering knows nothing before Read succeeds or its failure is final. GPUs that were offered before this start go on so until
// their change is due.
func NewOffering(ports OfferingPorts) *Offering {
	o := &Offering{
		ports: ports, config: unread(ports.NodeName), told: map[advice]string{}, wanted: make(chan struct{}, 1),
		going: transition{node: ports.NodeName, current: gpu.Layout{}, changes: map[gpu.UUID]*change{}},
	}
	o.recall()
	o.config.before = len(o.going.current) > 0
	return o
}

// Run reads until the configuration is known, where it is not watched until it is good, and again when Reload was called. It brings
// every GPU to what it says, and returns when the context ends. changed is called when there may be something else to offer.
func (o *Offering) Run(ctx context.Context, changed func()) error {
	for wait := rereadFirst; ; wait = min(2*wait, rereadMax) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(wait, o.longest())):
		case <-o.wanted:
			wait = rereadFirst
		}
		if o.reread(ctx) || o.followed() {
			changed()
		}
		if o.probe(ctx) || o.advance(ctx) || o.freed() {
			wait = rereadFirst
			changed()
		}
	}
}

// nudge makes Run look at once.
func (o *Offering) nudge() {
	select {
	case o.wanted <- struct{}{}:
	default:
	}
}

// errCounters is why nothing is offered in parts.
var errCounters = errors.New("whether the API server keeps the devices of one GPU apart was not found out yet")

// Probe finds out what has to be known of the API server, if anything.
func (o *Offering) Probe(ctx context.Context) {
	if _, _, err := o.Now(); errors.Is(err, errCounters) {
		o.probe(ctx)
	}
}

// probe asks whether the API server keeps counters, where that matters; false when there is no news.
func (o *Offering) probe(ctx context.Context) bool {
	if _, _, err := o.Now(); !errors.Is(err, errCounters) {
		return false
	}
	kept, err := o.kept(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "What is offered in parts is not published yet")
		if o.unprobed++; o.unprobed == patience {
			o.tell(advice{reason: events.PartitionableDevicesUnknown}, fmt.Sprintf("No change of what is offered is published: %v", err))
		}
		return false
	}
	o.unprobed = 0
	o.keeps(kept)
	return true
}

// Disjoin is told that the API server has left counters out: from now on no GPU offers devices that exclude each other.
func (o *Offering) Disjoin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keeps(false)
}

// Untaint is told that the API server has left taints out: GPUs change without them.
func (o *Offering) Untaint() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.untaints = true
}

// keeps notes whether the API server keeps counters.
func (o *Offering) keeps(kept bool) {
	o.counters, o.seen = &kept, nil
	if !kept {
		o.tell(advice{reason: events.PartitionableDevicesDisabled}, "The API server keeps no counters of devices, so every GPU is offered in one way: whole where its configuration "+
			"allows that, else as a fixed set of MIG slices; turn on the feature gate DRAPartitionableDevices (Kubernetes 1.36 has it on)")
	}
}

// Present is what a node has at one moment, what it is offered as, and what of that is to go.
type Present struct {
	Node    *gpu.Node
	Layout  gpu.Layout
	Leaving map[gpu.PoolDevice]bool
}

// Now returns what the node has and what its GPUs are offered as. The error says why that is not known yet; the node is there in any
// case.
func (o *Offering) Now() (*gpu.Node, gpu.Layout, error) {
	present, err := o.Present()
	return present.Node, present.Layout, err
}

// Present is Now, with what is to go.
func (o *Offering) Present() (Present, error) {
	view := o.ports.Inventory.Current()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.follow()
	if err := o.resolved(view); err != nil {
		return Present{Node: view.Node}, err
	}
	return Present{Node: view.Node, Layout: o.layout, Leaving: o.going.all()}, nil
}

// Changing counts the GPUs that are to be offered otherwise once they are free.
func (o *Offering) Changing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.going.changes)
}

// Devices lists everything on offer; nothing while that is not known.
func (o *Offering) Devices() []gpu.Device {
	node, layout, err := o.Now()
	if err != nil {
		return nil
	}
	var devices []gpu.Device
	for i := range node.GPUs {
		g := &node.GPUs[i]
		devices = append(devices, layout.Of(g).Devices(g)...)
	}
	return devices
}

// resolve works out the layout for a view.
func (o *Offering) resolve(view *inventory.View) error {
	records, err := o.ports.Records()
	if err != nil {
		return prepare.Redact("which GPUs are in use cannot be read now", err)
	}
	return o.resolveWith(view, records)
}

// resolveWith works out the layout for a view while these are the node's records.
func (o *Offering) resolveWith(view *inventory.View, records []*checkpoint.Record) error {
	wanted := o.wantedOf(view)
	o.seen, o.layout = view, gpu.Layout{}
	parted := false
	o.going.only(view.Node.GPUs)
	for i := range view.Node.GPUs {
		g := &view.Node.GPUs[i]
		to, known := wanted[g.UUID]
		if !known {
			to = gpu.Offer{Whole: true}
		}
		offer := o.going.aim(g, to, records, o.limit)
		if offer.Disjoint {
			offer = apart(o.ports.NodeName, g, offer, records)
		}
		o.advise(g, offer)
		offer.Withheld = withheld(o.ports.NodeName, g, of(g, offer), records)
		o.layout[g.UUID] = offer
		parted = parted || offer.Partitioned()
	}
	if parted && o.counters == nil {
		o.seen = nil
		if !o.asked { // later Run asks again by itself
			o.asked = true
			o.nudge()
		}
		return errCounters
	}
	return nil
}

// wantedOf is what the configuration wants of a view's GPUs. Of one that was refused since the start nothing is known, so that
// all stays as it was before the start.
func (o *Offering) wantedOf(view *inventory.View) gpu.Layout {
	if !o.config.known {
		return maps.Clone(o.going.current)
	}
	layout, refused, err := nodeconfig.Resolve(o.config.last, view.Node.GPUs, view.Node.Faults...)
	if err == nil {
		o.config.fits = true
		o.right(wrongGPUs)
		return layout
	}
	o.config.fits = false
	o.wrong(wrongGPUs, reasonRefused, fmt.Sprintf("%s: %v", instead(view.Node.GPUs, layout, refused), err))
	for _, id := range refused {
		if last, had := o.going.last(id); had {
			layout[id] = last
		}
	}
	return layout
}

// advise tells the administrator of a GPU that offers nothing because its MIG mode is not what the configuration wants.
func (o *Offering) advise(g *gpu.GPU, offer gpu.Offer) {
	about := advice{events.MIGModeMismatch, g.UUID}
	if !modeWrong(g, offer) {
		delete(o.told, about)
		return
	}
	wanted, mode := "MIG slices", 1
	if g.MIG.Mode.Enabled {
		wanted, mode = "the whole GPU", 0
	}
	o.tell(about, fmt.Sprintf("GPU %d (%s, %s) offers nothing: its configuration wants %s, and the MIG mode of this "+
		"product changes only with a reset; drain the node, run nvidia-smi -i %d -mig %d and nvidia-smi --gpu-reset -i %d", g.Index,
		g.Product.Name, g.UUID, wanted, g.Index, mode, g.Index))
}

// modeWrong tells whether a GPU's MIG mode is why it offers nothing. Where the mode is right, an instance of the administrator may
// leave room for nothing.
func modeWrong(g *gpu.GPU, offer gpu.Offer) bool {
	if g.MIG == nil || !g.MIG.Mode.NeedsReset || len(offer.Devices(g)) > 0 {
		return false
	}
	return !g.MIG.Mode.Enabled || len(offer.MIG) == 0 && !offer.Static
}

// advice is what an administrator should know: the reason of its Events, and the GPU that it is about, empty for none.
type advice struct {
	reason string
	gpu    gpu.UUID
}

// tell tells it, once as long as it is the same.
func (o *Offering) tell(about advice, note string) {
	if o.told[about] == note {
		return
	}
	o.told[about] = note
	klog.Background().Info("The node's configuration is not in force", "reason", note)
	o.ports.Events.Warn(about.reason, events.ActionConfigure, note)
}
