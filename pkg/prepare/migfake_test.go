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

// cutter makes and removes the MIG devices of a world, in two halves, by the names of the devices that they are.
type cutter struct {
	// made counts the MIG devices that Do has made.
	made int
	*world

	there map[string]gpu.MIGUUID // no UUID: half of it
}

// newPartitionable is a world whose first GPU is offered whole and in parts.
func newPartitionable(gpus int) (*world, *cutter) {
	w := newWorld(gpus)
	one := []gpu.Placement{{Start: 0, Size: 1}, {Start: 1, Size: 1}, {Start: 6, Size: 1}}
	w.node.GPUs[0].MIG = &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: one}, {ID: 20, Name: "1g.10gb+me", Slices: 1, Placements: one},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
	}}
	w.layout = gpu.Layout{uuid(0): {Whole: true, MIG: []string{"1g.10gb", "1g.10gb+me", "3g.40gb"}}}
	return w, &cutter{world: w, there: map[string]gpu.MIGUUID{}}
}

// startCutting is what a plugin does when it starts.
func (c *cutter) startCutting(t *testing.T) *process {
	t.Helper()
	p := c.start(t)
	p.Steps[claim.StepMIG] = c
	p.Preconditions[claim.PreconditionMIGMode], p.Preconditions[claim.PreconditionNoMIGMode] = c, c
	p.static.Static = c
	return p
}

// cut names a MIG device of the first GPU: "9-4".
func cut(slice string) string { return device(0) + "-mig-" + slice }

// usesOf are what claims have of the first GPU that have these slices.
func usesOf(slices ...string) (uses []gpu.Use) {
	for _, slice := range slices {
		profile, start, _ := strings.Cut(slice, "-")
		use := gpu.Use{Type: gpu.TypeMIG, Device: gpu.DeviceName(cut(slice)), Placement: gpu.Placement{Size: 1}, MediaExtensions: profile == "20"}
		use.Placement.Start, _ = strconv.Atoi(start)
		if profile == "9" {
			use.Placement.Size = 4
		}
		uses = append(uses, use)
	}
	return uses
}

// wantsOf is a claim for devices of the first GPU: slices, "" for all of it.
func wantsOf(uid string, slices ...string) *resourceapi.ResourceClaim {
	var devices []string
	for _, slice := range slices {
		name := device(0)
		if slice != "" {
			name = cut(slice)
		}
		devices = append(devices, name)
	}
	rc := wants(uid, devices...)
	for i := range rc.Status.Allocation.Devices.Results {
		rc.Status.Allocation.Devices.Results[i].Pool = nodeName + "/" + device(0)
	}
	return rc
}

func (c *cutter) Ensure(ctx context.Context, n claim.Precondition) error {
	return c.op(fmt.Sprintf("ensure %s %s", n.Kind, n.Target), unlessEnded(ctx, func() error { return nil }))
}

func (c *cutter) There(ctx context.Context, id gpu.UUID, m *checkpoint.MIG) error {
	name := fmt.Sprintf("%d-%d", m.Profile, m.Placement.Start)
	return c.op("look at "+name, unlessEnded(ctx, func() error {
		if id != uuid(0) || c.there[cut(name)] != m.Identity.UUID {
			return fmt.Errorf("MIG device %s is not on GPU %s any more: %w", m.Identity.UUID, id, gpu.ErrNotFound)
		}
		return nil
	}))
}

// destroy removes the MIG device of the administrator; the view knows of it if it is a fresh one.
func (c *cutter) destroy(fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.there, cut("19-6"))
	if fresh {
		c.view(nil)
	}
}

// view is what the inventory sees of an administrator from now on.
func (c *cutter) view(static []gpu.Instance) {
	node, g := *c.node, c.node.GPUs[0]
	m := *g.MIG
	m.Mode, m.Instances = gpu.MIGMode{Enabled: true, Pending: true}, static
	g.MIG = &m
	node.GPUs = append([]gpu.GPU{g}, node.GPUs[1:]...)
	c.node = &node
}

// administer makes the only MIG device of an administrator; the view has it too if it is a fresh one.
func (c *cutter) administer(gi int, device gpu.MIGUUID, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[cut("19-6")] = device
	if fresh {
		c.view([]gpu.Instance{{
			ID: gi, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}, Compute: []gpu.ComputeInstance{{Slices: 1, UUID: device}},
		}})
	}
}

func (c *cutter) Check(ctx context.Context, s checkpoint.Step) error {
	return c.op("check "+short(s), unlessEnded(ctx, func() error {
		if _, taken := c.there[s.Device]; taken {
			return gpu.ErrInUse
		}
		return nil
	}))
}

func (c *cutter) Do(ctx context.Context, s checkpoint.Step) (json.RawMessage, error) {
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

func (c *cutter) Undo(ctx context.Context, s checkpoint.Step) error {
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

func (c *cutter) Verify(ctx context.Context, s checkpoint.Step) error {
	return c.op("verify "+short(s), unlessEnded(ctx, func() error {
		id, err := c.Identify(s.Made)
		if err == nil && c.there[s.Device] != id.UUID {
			err = gpu.ErrNotFound
		}
		return err
	}))
}

func (*cutter) Identify(made json.RawMessage) (id gpu.MIGIdentity, err error) {
	err = json.Unmarshal(made, &id)
	return id, err
}

func short(s checkpoint.Step) string { return strings.TrimPrefix(s.Device, cut("")) }
