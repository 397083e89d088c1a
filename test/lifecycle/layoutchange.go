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

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nodeconfig"
	"github.com/prism-gpu/prism/pkg/plugin"
	"github.com/prism-gpu/prism/pkg/plugin/inventory"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/layout"
)

// layoutController changes the layout of the node in a process.
type layoutController struct {
	*plugin.Layout

	machine *Machine
	plugin  *plugin.Plugin
	client  *apiClient
}

// server is an API server that stores all fields.
type server struct {
	machine    *Machine
	faultPoint FaultPoint
}

func (server) PartitionableDevices(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (server) DeviceTaints(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (server) CountsShares(ctx context.Context) (bool, error) { return true, ctx.Err() }

func (s server) Tainted(ctx context.Context) (tainted map[gpu.PoolDevice]bool, err error) {
	err = s.faultPoint("api.ResourceSlices", func() error { tainted, err = s.machine.taints(); return err })
	return tainted, errors.Join(ctx.Err(), err)
}

func (s server) Allocated(ctx context.Context, query kube.AllocatedQuery) (page *kube.AllocatedPage, err error) {
	err = s.faultPoint("api.Claims", func() error { page, err = s.machine.allocated(time.Now(), query.Devices); return err })
	return page, errors.Join(ctx.Err(), err)
}

// Lead publishes as the leader.
func (o *layoutController) Lead() error {
	if err := o.client.slices.lead(func() *gpu.Node { return o.plugin.Machine.Inventory.Current().Node }); err != nil {
		return err
	}
	o.Layout.Lead()
	return nil
}

// wait waits that many seconds of fake time, or until no change is pending.
func (o *layoutController) wait(ctx context.Context, seconds int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // also if the process is killed meanwhile
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = o.plugin.Advertise(ctx) })
	var watchErr error
	least := 0
	if o.machine.parts.mps != nil { // MPS shares are withheld until the service was asked
		running.Go(func() { watchErr = mpsOf(o.plugin).Run(ctx) })
		least = askSeconds
	}
	for i := range seconds {
		time.Sleep(time.Second)
		if o.client.slices.send() && i > least && o.stable() {
			break
		}
	}
	stop()
	running.Wait()
	return errors.Join(err, watchErr)
}

// stable reports whether no change is pending.
func (o *layoutController) stable() bool {
	return o.Controller.Snapshot().Status.Changing == 0 && o.client.configMaps.current()
}

// configure changes the node's configuration and notifies the process.
func (o *layoutController) configure(ctx context.Context, text string) error {
	if err := o.machine.updateCluster(func(c *cluster) { c.Config = text }); err != nil {
		return err
	}
	o.Controller.Reload()
	return o.wait(ctx, changeSeconds)
}

// reconfigured notifies the process of a configuration that it has not read, and fails if it does not apply it. Layouts do not change by it.
func (o *layoutController) reconfigured(ctx context.Context) error {
	if o.client.configMaps.current() {
		return nil
	}
	o.Controller.Reload()
	if err := o.wait(ctx, changeSeconds); err != nil {
		return err
	}
	if !o.client.configMaps.current() {
		return errors.New("the configuration was not read")
	}
	return o.Controller.Snapshot().Err
}

const (
	// changeSeconds suffices for a change that is not blocked: an edit waits up to 5.5 s until it is read.
	changeSeconds = 19
	// askSeconds is how long a process that did not need the MPS service before may take to ask it.
	askSeconds = 11
	// releaseSeconds suffices for a change after the devices are released.
	releaseSeconds = 60
)

// layoutIsKept checks that allocated and recorded devices are saved and published, and that none was removed too early.
func (m *Machine) layoutIsKept(inv *inventory.Inventory, records map[string]*checkpoint.Record) error {
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
			return fmt.Errorf("claim %s has %s, but another layout is saved", uid, at)
		}
	}
	return nil
}

// savedPlaces returns the devices of the saved layout, nil without one.
func (m *Machine) savedPlaces(inv *inventory.Inventory) (map[string]bool, error) {
	kept, err := layout.File{Disk: disk.OS{}, Dir: m.StateDir}.Load()
	if kept.GPUs == nil || err != nil {
		return nil, err
	}
	return places(inv, kept.GPUs.WithModes(inv.Current().Node.GPUs, m.modes()...)), nil
}

// places returns the devices of a layout.
func places(inv *inventory.Inventory, as gpu.Layout) map[string]bool {
	found := map[string]bool{}
	node := inv.Current().Node
	for i := range node.GPUs {
		g := &node.GPUs[i]
		advertised := as.Of(g)
		for _, d := range advertised.Devices(g) {
			found[place(advertised.Pool(NodeName, g), string(d.Name()))] = true
		}
	}
	for _, d := range (gpu.Additional{Monitor: true, Perfmon: true}).Devices(node.GPUs) {
		found[place(gpu.Monitor{}.Pool(NodeName), string(d.Name()))] = true
	}
	return found
}

// layoutIsComplete checks that the configured layout is saved and published, no removal is pending, no device is allocated, and no
// temporary file is left.
func (m *Machine) layoutIsComplete(ctx context.Context) error {
	if !m.layoutChanges {
		return nil
	}
	inv, leave := m.inspect(m.open, nil)
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
	want, _, err := nodeconfig.Resolve(config, inv.Current().Node)
	if err != nil {
		return err
	}
	if len(c.Allocated) > 0 {
		return fmt.Errorf("claims still have %v", c.Allocated)
	}
	advertised := want.WithModes(inv.Current().Node.GPUs, m.modes()...)
	return errors.Join(m.hasSaved(inv, want), c.hasPublished(places(inv, advertised)), m.noHalfFiles())
}

// hasSaved checks that this layout is saved.
func (m *Machine) hasSaved(inv *inventory.Inventory, want gpu.Layout) error {
	saved, err := layout.File{Disk: disk.OS{}, Dir: m.StateDir}.Load()
	if err != nil || saved.GPUs == nil {
		return errors.Join(err, errors.New("no layout is saved"))
	}
	node := inv.Current().Node
	for i := range node.GPUs {
		if is, wanted := saved.GPUs.Of(&node.GPUs[i]), want.Of(&node.GPUs[i]); !is.Equal(wanted) {
			return fmt.Errorf("GPU %d: %+v is saved, the configuration results in %+v", i, is, wanted)
		}
	}
	return nil
}

// hasPublished checks that these devices are published without taints.
func (c *cluster) hasPublished(want map[string]bool) error {
	published := map[string]bool{}
	for at, d := range c.Published {
		if d.Leaving {
			return fmt.Errorf("%s still has to be removed", at)
		}
		published[at] = true
	}
	if !maps.Equal(published, want) {
		return fmt.Errorf("%v is published, the configuration results in %v", published, want)
	}
	return nil
}

// noHalfFiles checks that no temporary file is left.
func (m *Machine) noHalfFiles() error {
	files, err := os.ReadDir(m.StateDir)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), disk.TempSuffix) {
			return fmt.Errorf("%s is left in %s", file.Name(), m.StateDir)
		}
	}
	return err
}
