package mig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
	"github.com/prism-gpu/prism/test/simgpu/port"
)

// world is a GPU that refuses as a real one does. It notes the changes by the step or the need under test.
type world struct {
	gpu.MIGDriver

	t       *testing.T
	node    *model.Node
	id      gpu.UUID
	changes []string
	// absent: the driver is not loaded; lies: it says that it has removed instances and has not; careless: it turns the mode off under
	// instances.
	absent, lies, careless bool
	// shown is the GPU's mode as the rest of the program knows it, unless unseen; inspections counts how often it was read.
	shown       gpu.MIGMode
	unseen      bool
	inspections int
	// inspect is asked before each inspection; nil lets it be made.
	inspect func(ctx context.Context) error
	// destroyed is called when an instance was removed.
	destroyed func()
	// load is the driver's load.
	load string
}

func newWorld(t *testing.T, board string) *world {
	t.Helper()
	return newWorldOf(t, model.Uniform("n0", board, 1))
}

func newWorldOf(t *testing.T, spec model.Spec) *world {
	t.Helper()
	node, err := model.New(spec)
	require.NoError(t, err)
	host := port.NewHost(node)
	root, err := host.FindDriver("")
	require.NoError(t, err)
	session, err := host.Open(t.Context(), root)
	require.NoError(t, err)
	w := &world{MIGDriver: session, t: t, node: node, id: gpu.UUID(node.Identities()[0].UUID), load: "1"}
	require.NoError(t, w.refresh(t.Context()))
	return w
}

// refresh updates the mode that the rest of the program knows.
func (w *world) refresh(ctx context.Context) error {
	w.inspections++
	if w.inspect != nil {
		if err := w.inspect(ctx); err != nil {
			return err
		}
	}
	mode, err := w.MIGMode(ctx, w.id)
	if err == nil {
		w.shown = mode
	}
	return err
}

// partitioned is a Hopper GPU in MIG mode.
func partitioned(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "h100-80")
	require.NoError(t, w.MIGDriver.SetMIGMode(t.Context(), w.id, true))
	return w
}

func (w *world) open() (gpu.MIGDriver, error) {
	if w.absent {
		return nil, gpu.ErrDriverNotLoaded
	}
	return w, nil
}

func (w *world) step() Step { return Step{Driver: w.open, Load: func() string { return w.load }} }

func (w *world) mode() Mode {
	return Mode{Driver: w.open, Shown: func(id gpu.UUID) (gpu.MIGMode, bool) { return w.shown, id == w.id && !w.unseen }, Changed: w.refresh}
}

// note records a change.
func (w *world) note(format string, args ...any) {
	w.changes = append(w.changes, fmt.Sprintf(format, args...))
}

func (w *world) SetMIGMode(ctx context.Context, id gpu.UUID, on bool) error {
	w.note("set mode %v", on)
	if w.careless && ctx.Err() == nil {
		for _, i := range w.there() {
			w.removed(i)
		}
	}
	return w.MIGDriver.SetMIGMode(ctx, id, on)
}

func (w *world) CreateInstance(ctx context.Context, id gpu.UUID, profile int, at gpu.Placement) (int, error) {
	w.note("create")
	return w.MIGDriver.CreateInstance(ctx, id, profile, at)
}

func (w *world) CreateComputeInstance(ctx context.Context, id gpu.UUID, gi int) (gpu.ComputeInstance, error) {
	w.note("create compute")
	return w.MIGDriver.CreateComputeInstance(ctx, id, gi)
}

func (w *world) DestroyComputeInstance(ctx context.Context, id gpu.UUID, gi, ci int) error {
	w.note("destroy compute")
	return w.MIGDriver.DestroyComputeInstance(ctx, id, gi, ci)
}

func (w *world) DestroyInstance(ctx context.Context, id gpu.UUID, gi int) error {
	w.note("destroy")
	if w.lies {
		return ctx.Err()
	}
	if w.destroyed != nil {
		defer w.destroyed()
	}
	return w.MIGDriver.DestroyInstance(ctx, id, gi)
}

// calls counts the calls of the driver.
func (w *world) calls() (n uint64) {
	for _, of := range w.node.Calls.Of(os.Getpid()).Counts {
		n += of
	}
	return n
}

// fail makes calls of a symbol fail.
func (w *world) fail(symbol string, ret model.Return) (mend func()) {
	w.t.Helper()
	id, err := w.node.Faults.Add(model.Fault{Effect: model.EffectError, Return: ret, GPU: 0, Call: symbol})
	require.NoError(w.t, err)
	return func() { w.node.Faults.Remove(id) }
}

// The profiles of an H100 that the tests use.
const (
	oneSlice    = 19
	threeSlices = 9
	fourSlices  = 5
)

// deviceStep is the step that creates a MIG device at a placement.
func (w *world) deviceStep(profile int, at gpu.Placement) checkpoint.Step {
	w.t.Helper()
	names := map[int]string{oneSlice: "1g.10gb", threeSlices: "3g.40gb"}
	args, err := json.Marshal(claim.MIG{PCIBusID: "0000:01:00.0", Profile: profile, Name: names[profile], Placement: at})
	require.NoError(w.t, err)
	return checkpoint.Step{Kind: claim.StepMIG, Target: w.id, Device: "gpu-0-mig", Args: args}
}

// made is the step after the MIG device was created.
func (w *world) made(profile int, at gpu.Placement) checkpoint.Step {
	w.t.Helper()
	s := w.deviceStep(profile, at)
	raw, err := w.step().Do(w.t.Context(), s)
	require.NoError(w.t, err)
	s.Made, w.changes = raw, nil
	return s
}

// administrator makes an instance without the step, with or without a compute instance.
func (w *world) administrator(profile int, at gpu.Placement, compute bool) gpu.Instance {
	w.t.Helper()
	gi, err := w.MIGDriver.CreateInstance(w.t.Context(), w.id, profile, at)
	require.NoError(w.t, err)
	if compute {
		_, err = w.MIGDriver.CreateComputeInstance(w.t.Context(), w.id, gi)
		require.NoError(w.t, err)
	}
	all := w.there()
	return all[slices.IndexFunc(all, func(i gpu.Instance) bool { return i.ID == gi })]
}

// compute makes compute instances of these kinds in a GPU instance that has none, as an administrator can.
func (w *world) compute(gi int, kinds ...uint32) gpu.Instance {
	w.t.Helper()
	identity := w.node.Identities()[0]
	session, err := w.node.Open("", []int{identity.Minor})
	require.NoError(w.t, err)
	defer session.Close()
	card, err := session.ByUUID(identity.UUID)
	require.NoError(w.t, err)
	parent, err := session.GPUInstanceByID(card, uint32(gi), true)
	require.NoError(w.t, err)
	for _, kind := range kinds {
		_, err := session.CreateComputeInstance(w.t.Context(), parent, kind, true)
		require.NoError(w.t, err)
	}
	all := w.there()
	return all[slices.IndexFunc(all, func(i gpu.Instance) bool { return i.ID == gi })]
}

// removed takes an instance away without the step.
func (w *world) removed(instance gpu.Instance) {
	w.t.Helper()
	for _, c := range instance.Compute {
		require.NoError(w.t, w.MIGDriver.DestroyComputeInstance(w.t.Context(), w.id, instance.ID, c.ID))
	}
	require.NoError(w.t, w.MIGDriver.DestroyInstance(w.t.Context(), w.id, instance.ID))
}

// there are the instances that exist.
func (w *world) there() []gpu.Instance {
	w.t.Helper()
	all, err := w.Instances(w.t.Context(), w.id)
	require.NoError(w.t, err)
	return all
}

// untouched requires that nothing was changed since, and that these instances are all there are.
func (w *world) untouched(instances ...gpu.Instance) {
	w.t.Helper()
	assert.Empty(w.t, w.changes)
	assert.ElementsMatch(w.t, instances, w.there())
}
