package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/inventory"
	"github.com/prism-gpu/prism/pkg/kube"
	"github.com/prism-gpu/prism/pkg/layout"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/plugin"
)

// offer is a process's part in what the node offers, where that changes.
type offer struct {
	*plugin.Layout

	machine *Machine
	touch   Touch

	mu sync.Mutex
	// leads: the process publishes. Unsent is what the API server does not have yet.
	leads  bool
	unsent *resourceslice.DriverResources
	// node is what the process sees now.
	node func() *gpu.Node
	// read is the configuration that was read last.
	read string
}

// silent takes Events.
type silent struct{}

func (silent) Warn(_, _, _ string) {}

func (silent) Normal(_, _, _ string) {}

// offering builds what decides what the node's GPUs are offered as.
func (m *Machine) offering(p *Process, touch Touch) *offer {
	o := &offer{machine: m, touch: touch, node: func() *gpu.Node { return p.machine.Inventory.Current().Node }}
	o.Layout = plugin.NewLayout(m.settings(), p.machine, plugin.LayoutPorts{
		Cluster: server{m, touch}, Slices: o, Events: silent{},
		Config: layout.ConfigPorts{Read: o.config, Retryable: func(err error) bool { return errors.Is(err, errConfig) }, Watched: true},
	})
	return o
}

// server is an API server that keeps all that it is given.
type server struct {
	machine *Machine
	touch   Touch
}

func (server) PartitionableDevices(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (server) DeviceTaints(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (server) CountsShares(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (s server) Tainted(ctx context.Context) (tainted map[gpu.PoolDevice]bool, err error) {
	err = s.touch("api.Slices", func() error { tainted, err = s.machine.taints(); return err })
	return tainted, errors.Join(ctx.Err(), err)
}

func (s server) Allocated(ctx context.Context, query kube.AllocatedQuery) (page *kube.AllocatedPage, err error) {
	err = s.touch("api.Claims", func() error { page, err = s.machine.allocated(time.Now(), query.Devices); return err })
	return page, errors.Join(ctx.Err(), err)
}

// errConfig: the configuration could not be read for a reason of the moment.
var errConfig = errors.New("the API server does not answer")

// config reads the node's configuration.
func (o *offer) config(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	var text string
	err := o.touch("api.Config", func() error {
		c, err := o.machine.cluster()
		text = c.Config
		return errors.Join(ctx.Err(), err)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	config, _, err := nodeconfig.Parse([]byte(text), "test")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read = text
	return config, err
}

// begin finds out what to offer and becomes the one that publishes it.
func (o *offer) begin(ctx context.Context, read layout.AtStart) error {
	o.Begin(ctx, read)
	if err := o.machine.tell(func(c *cluster) { c.leads(time.Now()) }); err != nil {
		return err
	}
	o.Controller.Lead(true)
	o.mu.Lock()
	o.leads = true
	o.mu.Unlock()
	o.Publisher.Publish()
	return nil
}

// Publish is told what the node offers.
func (o *offer) Publish(resources resourceslice.DriverResources) {
	o.mu.Lock()
	o.unsent = &resources
	o.mu.Unlock()
	o.send()
}

// send sends what was not sent yet; false when something still is not.
func (o *offer) send() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.leads || o.unsent == nil {
		return true
	}
	err := o.touch("api.Publish", func() error {
		return o.machine.tell(func(c *cluster) { c.publish(*o.unsent, o.node(), time.Now()) })
	})
	if err == nil {
		o.unsent = nil
	}
	return err == nil
}

// pass lets so many seconds go by, fewer where nothing is to change any more. Only in the time of a test that is not the world's.
func (o *offer) pass(ctx context.Context, seconds int) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = o.Controller.Run(ctx, o.Publisher.Publish) })
	for i := range seconds {
		time.Sleep(time.Second)
		if o.send() && i > 0 && o.calm() {
			break
		}
	}
	stop()
	running.Wait()
	return err
}

// calm tells whether nothing is to change any more.
func (o *offer) calm() bool {
	c, err := o.machine.cluster()
	o.mu.Lock()
	defer o.mu.Unlock()
	return err == nil && o.Controller.Snapshot().Status.Changing == 0 && c.Config == o.read
}

// configure has the node's administrator say what its GPUs are to be, and the process hear of it.
func (o *offer) configure(ctx context.Context, text string) error {
	if err := o.machine.tell(func(c *cluster) { c.Config = text }); err != nil {
		return err
	}
	o.Controller.Reload()
	return o.pass(ctx, aWhile)
}

const (
	// aWhile is long enough, in seconds, for a change that nothing holds up, and long for a change that something does.
	aWhile = 14
	// atLast is how long it may take after that which held it up has gone.
	atLast = 60
)

// offeringIsKept: what claims have, and what records name, is what is saved and what is published, and nothing went before its time.
func (m *Machine) offeringIsKept(inv *inventory.Inventory, records map[string]*checkpoint.Record) error {
	c, err := m.cluster()
	if err != nil {
		return err
	}
	if c.Broken != "" {
		return errors.New(c.Broken)
	}
	saved, err := m.savedPlaces(inv)
	if err != nil {
		return err
	}
	held := map[string]string{}
	for uid, places := range c.Allocated {
		for _, at := range places {
			held[at] = uid
		}
	}
	for uid, r := range records {
		for i := range r.Results {
			held[place(r.Results[i].Pool, r.Results[i].Device)] = uid
		}
	}
	for at, uid := range held {
		if c.Published[at] == nil && c.sees(at) {
			return fmt.Errorf("claim %s has %s, which is not published", uid, at)
		}
		if saved != nil && !saved[at] {
			return fmt.Errorf("claim %s has %s, and another layout is saved", uid, at)
		}
	}
	return nil
}

// savedPlaces are the devices of the layout that is saved, nil where none is.
func (m *Machine) savedPlaces(inv *inventory.Inventory) (map[string]bool, error) {
	kept, err := layout.File{Disk: disk.OS{}, Dir: m.StateDir}.Load()
	if kept.GPUs == nil || err != nil {
		return nil, err
	}
	return places(inv, kept.GPUs), nil
}

// places are the devices of a layout.
func places(inv *inventory.Inventory, as gpu.Layout) map[string]bool {
	found := map[string]bool{}
	node := inv.Current().Node
	for i := range node.GPUs {
		g := &node.GPUs[i]
		offer := as.Of(g)
		for _, d := range offer.Devices(g) {
			found[place(offer.Pool(NodeName, g), string(d.Name()))] = true
		}
	}
	return found
}

// offeringIsSettled: what the configuration says is saved and published, nothing is to go, no claim has anything, and no half of a file
// is left.
func (m *Machine) offeringIsSettled(ctx context.Context) error {
	if !m.offers {
		return nil
	}
	inv, leave := m.look(m.open, nil)
	defer func() { _ = leave() }()
	if err := inv.Refresh(ctx); err != nil {
		return err
	}
	c, err := m.cluster()
	if err != nil {
		return err
	}
	config, _, err := nodeconfig.Parse([]byte(c.Config), "test")
	if err != nil {
		return err
	}
	want, _, err := nodeconfig.Resolve(config, inv.Current().Node.GPUs)
	if err != nil {
		return err
	}
	if len(c.Allocated) > 0 {
		return fmt.Errorf("claims still have %v", c.Allocated)
	}
	return errors.Join(m.hasSaved(inv, want), c.hasPublished(places(inv, want)), m.noHalfFiles())
}

// hasSaved: this is the layout that is saved.
func (m *Machine) hasSaved(inv *inventory.Inventory, want gpu.Layout) error {
	saved, err := layout.File{Disk: disk.OS{}, Dir: m.StateDir}.Load()
	if err != nil || saved.GPUs == nil {
		return errors.Join(err, errors.New("a layout must be saved"))
	}
	node := inv.Current().Node
	for i := range node.GPUs {
		if is, wanted := saved.GPUs.Of(&node.GPUs[i]), want.Of(&node.GPUs[i]); !is.Equal(wanted) {
			return fmt.Errorf("GPU %d: %+v is saved, and the configuration comes to %+v", i, is, wanted)
		}
	}
	return nil
}

// hasPublished: these are the devices that are published, with the node's monitor device, and none is to go.
func (c *cluster) hasPublished(want map[string]bool) error {
	want[place(gpu.Monitor{}.Pool(NodeName), string(gpu.Monitor{}.Name()))] = true
	published := map[string]bool{}
	for at, d := range c.Published {
		if d.Leaving {
			return fmt.Errorf("%s is still to go", at)
		}
		published[at] = true
	}
	if !maps.Equal(published, want) {
		return fmt.Errorf("%v is published, and the configuration comes to %v", published, want)
	}
	return nil
}

// noHalfFiles: nothing is left of a file that was not finished.
func (m *Machine) noHalfFiles() error {
	files, err := os.ReadDir(m.StateDir)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), disk.TempSuffix) {
			return fmt.Errorf("%s is left in %s", file.Name(), m.StateDir)
		}
	}
	return err
}
