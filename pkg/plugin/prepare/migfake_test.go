package prepare

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// migDriver creates and removes the MIG devices of a world, in two steps as NVML does, by the names of their devices.
type migDriver struct {
	// made counts the MIG devices that Do has made.
	made int
	*world

	there map[string]gpu.MIGUUID // no UUID: a GPU instance without its compute instance
}

// newPartitionable is a world whose first GPU is advertised whole and as MIG devices.
func newPartitionable(gpus int) (*world, *migDriver) {
	w := newWorld(gpus)
	one := []gpu.Placement{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 6, Size: 1}}
	w.node.GPUs[0].MIG = &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: one}, {ID: 20, Name: "1g.10gb+me", Slices: 1, Placements: one},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
	}}
	w.layout = gpu.Layout{uuid(0): {Whole: true, MIG: []string{"1g.10gb", "1g.10gb+me", "3g.40gb"}}}
	return w, &migDriver{world: w, there: map[string]gpu.MIGUUID{}}
}

// startWithMIG starts a plugin with MIG.
func (c *migDriver) startWithMIG(t *testing.T) *process {
	t.Helper()
	p := c.start(t)
	p.Steps[claim.StepMIG] = c
	p.Preconditions[claim.PreconditionMIGMode], p.Preconditions[claim.PreconditionNoMIGMode] = c, c
	p.static.Static = c
	return p
}

// migName is the name of a MIG device of the first GPU by its profile and its placement: "9-4".
func migName(placed string) string { return device(0) + "-mig-" + placed }

// usesOf returns the uses of the first GPU by these MIG devices, which are named by profile and placement.
func usesOf(devices ...string) (uses []gpu.Use) {
	for _, placed := range devices {
		profile, start, _ := strings.Cut(placed, "-")
		use := gpu.Use{Type: gpu.TypeMIG, Device: gpu.DeviceName(migName(placed)), Placement: gpu.Placement{Size: 1}, MediaExtensions: profile == "20"}
		use.Placement.Start, _ = strconv.Atoi(start)
		if profile == "9" {
			use.Placement.Size = 4
		}
		uses = append(uses, use)
	}
	return uses
}

// wantsOf is a claim for MIG devices of the first GPU, by profile and placement; "" is the whole GPU.
func wantsOf(uid string, placed ...string) *resourceapi.ResourceClaim {
	var devices []string
	for _, p := range placed {
		name := device(0)
		if p != "" {
			name = migName(p)
		}
		devices = append(devices, name)
	}
	rc := wants(uid, devices...)
	for i := range rc.Status.Allocation.Devices.Results {
		rc.Status.Allocation.Devices.Results[i].Pool = nodeName + "/" + device(0)
	}
	return rc
}

func (c *migDriver) Ensure(ctx context.Context, n claim.Precondition) error {
	return c.op(fmt.Sprintf("ensure %s %s", n.Kind, n.Target), unlessEnded(ctx, func() error { return nil }))
}

func (c *migDriver) There(ctx context.Context, id gpu.UUID, m *checkpoint.MIG) error {
	name := fmt.Sprintf("%d-%d", m.Profile, m.Placement.Start)
	return c.op("inspect "+name, unlessEnded(ctx, func() error {
		if id != uuid(0) || c.there[migName(name)] != m.Identity.UUID {
			return fmt.Errorf("MIG device %s is not on GPU %s any more: %w", m.Identity.UUID, id, gpu.ErrNotFound)
		}
		return nil
	}))
}

// destroy removes the MIG device of the administrator; with fresh the view shows it.
func (c *migDriver) destroy(fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.there, migName("19-6"))
	if fresh {
		c.view(nil)
	}
}

// view sets the administrator's MIG devices that the inventory sees from now on.
func (c *migDriver) view(static []gpu.Instance) {
	node, g := *c.node, c.node.GPUs[0]
	m := *g.MIG
	m.Mode, m.Instances = gpu.MIGMode{Enabled: true, Pending: true}, static
	g.MIG = &m
	node.GPUs = append([]gpu.GPU{g}, node.GPUs[1:]...)
	c.node = &node
}

// administer makes the only MIG device of an administrator; with fresh the view shows it.
func (c *migDriver) administer(gi int, device gpu.MIGUUID, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[migName("19-6")] = device
	if fresh {
		c.view([]gpu.Instance{{
			ID: gi, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: device}},
		}})
	}
}

func (c *migDriver) Check(ctx context.Context, s checkpoint.Step) error {
	return c.op("check "+short(s), unlessEnded(ctx, func() error {
		if _, taken := c.there[s.Device]; taken {
			return gpu.ErrInUse
		}
		return nil
	}))
}

func (c *migDriver) Do(ctx context.Context, s checkpoint.Step) (json.RawMessage, error) {
	id := gpu.MIGIdentity{GPUInstance: 3}
	err := c.op("make "+short(s), unlessEnded(ctx, func() error { c.there[s.Device] = ""; return nil }))
	if err != nil {
		return nil, err
	}
	err = c.op("fill "+short(s), unlessEnded(ctx, func() error {
		c.made++
		id.ComputeInstance, id.UUID = 1, gpu.MIGUUID("MIG-"+short(s)) // the same at each creation
		c.there[s.Device] = id.UUID
		return nil
	}))
	raw, _ := json.Marshal(id)
	return raw, err
}

func (c *migDriver) Undo(ctx context.Context, s checkpoint.Step) error {
	known := "nothing"
	if len(s.Made) > 0 {
		id, err := c.Identify(s.Made)
		if err != nil {
			return err
		}
		known = "half"
		if id.UUID != "" {
			known = string(id.UUID)
		}
	}
	return c.op(fmt.Sprintf("undo %s, made %s", short(s), known), unlessEnded(ctx, func() error { delete(c.there, s.Device); return nil }))
}

func (c *migDriver) Verify(ctx context.Context, s checkpoint.Step) error {
	return c.op("verify "+short(s), unlessEnded(ctx, func() error {
		id, err := c.Identify(s.Made)
		if err == nil && c.there[s.Device] != id.UUID {
			err = gpu.ErrNotFound
		}
		return err
	}))
}

func (*migDriver) Identify(made json.RawMessage) (id gpu.MIGIdentity, err error) {
	err = json.Unmarshal(made, &id)
	return id, err
}

func short(s checkpoint.Step) string { return strings.TrimPrefix(s.Device, migName("")) }
