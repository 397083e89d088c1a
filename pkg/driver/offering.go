package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
)

// OfferingPorts is what an Offering works with.
type OfferingPorts struct {
	Inventory *inventory.Inventory
	// Read returns the node's configuration, nil where it has none.
	Read func(ctx context.Context) (*v1alpha1.NodeConfig, error)
	// Passing tells whether an error of Read is of the moment, so that nothing is known yet; after another one GPUs are offered whole.
	Passing func(err error) bool
	// Counters tells whether the API server keeps what keeps devices of one GPU apart. It is asked only where GPUs are offered in
	// parts.
	Counters func(ctx context.Context) (bool, error)
	// Records lists the claims' records.
	Records func() ([]*checkpoint.Record, error)
	Events  NodeEvents
	// NodeName is the name of the pool of whole GPUs.
	NodeName string
}

// Offering is what the node offers: what it has, and what its configuration makes of that. A GPU that claims hold keeps offering
// what they were given, from the same pool, until it is free.
type Offering struct {
	ports OfferingPorts

	mu     sync.Mutex
	config *v1alpha1.NodeConfig
	unread error // why the configuration is not known yet
	// failures counts the tries that only time can help.
	failures int
	good     bool // it was read, and these GPUs can give what it says
	// counters are whether the API server keeps them; nil while that is not known.
	counters *bool
	wanted   chan struct{} // asks Run to find out, once
	asked    bool
	seen     *inventory.View
	layout   gpu.Layout
	held     bool // some GPU does not offer yet what it should
	told     map[string]bool
}

// The configuration is read again after rereadFirst, twice as long each time up to rereadMax; GPUs that are held are looked at as
// often.
const (
	rereadFirst = time.Second
	rereadMax   = 10 * time.Second
	// patience is after how many failures the administrator is told of what may pass by itself.
	patience = 6
)

// NewOffering knows nothing before Read succeeds or its failure is final.
func NewOffering(ports OfferingPorts) *Offering {
	return &Offering{
		ports: ports, unread: fmt.Errorf("the configuration of node %s was not read yet", ports.NodeName),
		told: map[string]bool{}, wanted: make(chan struct{}, 1),
	}
}

// Load reads the configuration once. It returns false as long as it should be tried again.
func (o *Offering) Load(ctx context.Context) bool {
	config, err := o.ports.Read(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.config, o.unread = config, nil
	case o.ports.Passing(err):
		o.unread = err
		klog.FromContext(ctx).Error(err, "The node's configuration was not read yet")
		if o.failures++; o.failures == patience {
			o.tell("ConfigUnread", fmt.Sprintf("No change of what is offered is published: %v", err))
		}
	default:
		o.unread = nil
		instead := "GPUs are offered whole"
		if o.config != nil {
			instead = "The configuration that was read before stays"
		}
		o.tell("ConfigRefused", fmt.Sprintf("%s: %v", instead, err))
	}
	o.seen, o.good = nil, err == nil
	return o.good
}

// Run reads until the configuration is good and every GPU offers what it says, and returns when the context ends. changed is called
// when there may be something else to offer.
func (o *Offering) Run(ctx context.Context, changed func()) error {
	for wait := rereadFirst; ; wait = min(2*wait, rereadMax) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-o.wanted:
			wait = rereadFirst
		}
		if !o.loaded() {
			o.Load(ctx)
			changed()
		}
		if o.probe(ctx) || o.free() {
			changed()
		}
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
	kept, err := o.ports.Counters(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "What is offered in parts is not published yet")
		return false
	}
	o.keeps(kept)
	return true
}

// Disjoin is told that the API server has left counters out: from now on no GPU offers devices that exclude each other.
func (o *Offering) Disjoin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keeps(false)
}

// keeps notes whether the API server keeps counters.
func (o *Offering) keeps(kept bool) {
	o.counters, o.seen = &kept, nil
	if !kept {
		o.tell("CountersDropped", "The API server keeps no counters of devices, so every GPU is offered in one way: whole where its configuration "+
			"allows that, else as a fixed set of MIG slices; turn on the feature gate DRAPartitionableDevices (Kubernetes 1.36 has it on)")
	}
}

// loaded tells whether there is nothing more to read.
func (o *Offering) loaded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.good
}

// free forgets a layout that some GPU was held back from; false when there is none.
func (o *Offering) free() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		o.seen = nil
	}
	return o.held
}

// Now returns what the node has and what its GPUs are offered as. The error says why that is not known yet; the node is there in any
// case.
func (o *Offering) Now() (*gpu.Node, gpu.Layout, error) {
	view := o.ports.Inventory.Current()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unread != nil {
		return view.Node, nil, o.unread
	}
	if o.seen != view {
		if err := o.resolve(view); err != nil {
			return view.Node, nil, err
		}
	}
	return view.Node, o.layout, nil
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
		return fmt.Errorf("looking which GPUs are in use: %w", err)
	}
	layout, err := nodeconfig.Resolve(o.config, view.Node.GPUs)
	if err != nil {
		o.good = false
		o.tell("ConfigRefused", fmt.Sprintf("The GPUs that this is about are offered whole: %v", err))
	}
	before := o.layout
	o.seen, o.layout, o.held = view, gpu.Layout{}, false
	parted := false
	for i := range view.Node.GPUs {
		g := &view.Node.GPUs[i]
		wanted := layout.Of(g)
		offer := keep(o.ports.NodeName, g, layout, records)
		if !offer.Equal(wanted) {
			o.held = true
			if last, known := before[g.UUID]; !known || !offer.Equal(last) {
				klog.Background().Info("A GPU in use keeps what it is offered as", "gpu", g.UUID, "devices", len(offer.Devices(g)))
			}
		}
		o.layout[g.UUID] = offer
		parted = parted || offer.Partitioned()
		o.advise(g, offer)
	}
	if !parted {
		return nil
	}
	if o.counters == nil {
		o.seen = nil
		if !o.asked { // later Run asks again by itself
			o.asked = true
			o.wanted <- struct{}{}
		}
		return errCounters
	}
	if !*o.counters {
		o.layout = o.layout.Disjoint()
	}
	return nil
}

// advise tells the administrator of a GPU that offers nothing because its MIG mode is not what the configuration wants.
func (o *Offering) advise(g *gpu.GPU, offer gpu.Offer) {
	if g.MIG == nil || !g.MIG.Mode.NeedsReset || len(offer.Devices(g)) > 1 {
		return
	}
	wanted, mode := "MIG slices", 1
	if g.MIG.Mode.Enabled {
		if offer.Partitioned() {
			return // the mode is right, and an instance of the administrator leaves room for nothing
		}
		wanted, mode = "the whole GPU", 0
	}
	o.tell("MIGModeWrong", fmt.Sprintf("GPU %d (%s, %s) offers nothing: its configuration wants %s, and the MIG mode of this "+
		"product changes only with a reset; drain the node, run nvidia-smi -i %d -mig %d and nvidia-smi --gpu-reset -i %d", g.Index,
		g.Product.Name, g.UUID, wanted, g.Index, mode, g.Index))
}

// tell tells a thing once.
func (o *Offering) tell(reason, note string) {
	if o.told[note] {
		return
	}
	o.told[note] = true
	klog.Background().Info("The node's configuration is not in force", "reason", note)
	o.ports.Events.Warn(reason, "Configure", note)
}

// keep is what a GPU is to be offered as while these records are there: what is wanted, or, where it would not have every device
// that a claim owns in the pool that the claim has it from, that and those.
func keep(node string, g *gpu.GPU, layout gpu.Layout, records []*checkpoint.Record) gpu.Offer {
	offer := layout.Of(g)
	kept, missing := offer, false
	for _, r := range records {
		for i := range r.Results {
			result := &r.Results[i]
			if result.GPUUUID != g.UUID || result.Admin || result.Pool == offer.Pool(node, g) && offers(offer, g, result.Device) {
				continue
			}
			missing = true
			if result.Pool == node {
				return gpu.Offer{Whole: true}
			}
			switch {
			case result.MIG != nil:
				kept = kept.With(result.MIG.Name, g)
			case result.Share != nil:
				kept.TimeSlice = &gpu.Replicas{Count: result.Share.Replicas, ShareName: result.Share.Name}
			default:
				kept.Whole, kept.Static = true, true
			}
		}
	}
	if missing {
		return kept
	}
	return offer
}

func offers(offer gpu.Offer, g *gpu.GPU, device string) bool {
	for _, d := range offer.Devices(g) {
		if string(d.Name()) == device {
			return true
		}
	}
	return false
}
