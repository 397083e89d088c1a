package gc

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/ownership"
)

const (
	boot          = "boot-1"
	gpuA gpu.UUID = "GPU-a"
	gpuB gpu.UUID = "GPU-b"
)

// node is a node in memory.
type node struct {
	stored                        []*checkpoint.Record
	specs, halfSpecs, halfRecords []string
	aside                         []string
	effects                       []checkpoint.Step
	// locked runs when a GPU is locked.
	locked func()
}

type records struct{ *node }

func (n records) Load(uid string) (*checkpoint.Record, error) {
	for _, r := range n.stored {
		if r.Claim.UID == uid {
			return r, nil
		}
	}
	return nil, gpu.ErrNotFound
}

func (n records) All() ([]*checkpoint.Record, []error, error) { return n.stored, nil, nil }
func (n records) SetAside() ([]string, error)                 { return n.aside, nil }
func (n records) Unfinished() ([]string, error)               { return slices.Clone(n.halfRecords), nil }
func (n records) Discard(uid string) error                    { n.halfRecords = without(n.halfRecords, uid); return nil }

type specs struct{ *node }

func (n specs) Claims() ([]string, error)     { return slices.Clone(n.specs), nil }
func (n specs) Remove(uid string) error       { n.specs = without(n.specs, uid); return nil }
func (n specs) Unfinished() ([]string, error) { return slices.Clone(n.halfSpecs), nil }
func (n specs) Discard(uid string) error      { n.halfSpecs = without(n.halfSpecs, uid); return nil }

func without(uids []string, uid string) []string {
	return slices.DeleteFunc(uids, func(other string) bool { return other == uid })
}

type locks struct{ *node }

func (locks) Claim(context.Context, string) (func(), error) { return func() {}, nil }

func (n locks) GPUs(context.Context, []gpu.UUID) (func(), bool, error) {
	if n.locked != nil {
		n.locked()
	}
	return func() {}, false, nil
}

// finder finds the effects of the node.
type finder struct{ *node }

func (n finder) Find(context.Context) ([]checkpoint.Step, error) { return slices.Clone(n.effects), nil }

func (finder) Names(recorded, found checkpoint.Step) bool { return recorded.Device == found.Device }

var errDependent = errors.New("another effect depends on it")

// Undo fails for an effect "base" while there is another one.
func (n finder) Undo(_ context.Context, s checkpoint.Step) error {
	if s.Device == "base" && len(n.effects) > 1 {
		return errDependent
	}
	n.effects = slices.DeleteFunc(n.effects, func(e checkpoint.Step) bool { return e.Device == s.Device && e.Target == s.Target })
	return nil
}

func (n *node) collector(t *testing.T) *Collector {
	t.Helper()
	guard, _, _, err := ownership.New(records{n}, locks{n}, ownership.Options{})
	require.NoError(t, err)
	return New(Options{
		Guard: guard, Records: records{n}, Specs: specs{n}, BootID: boot,
		Finders: Finders(map[string]any{"mig": finder{n}, "other": struct{}{}}),
	})
}

func effect(id gpu.UUID, device string) checkpoint.Step {
	return checkpoint.Step{Kind: "mig", Target: id, Device: device}
}

func record(uid, in string, steps ...checkpoint.Step) *checkpoint.Record {
	r := &checkpoint.Record{Claim: checkpoint.Claim{UID: uid}, State: checkpoint.Done, BootID: in, Steps: steps}
	for _, s := range steps {
		r.Results = append(r.Results, checkpoint.Result{Device: s.Device, GPUUUID: s.Target, Type: gpu.TypeMIG})
	}
	return r
}

func TestCollect_EffectsAndFiles_OnlyLeakedRemoved(t *testing.T) {
	t.Parallel()
	n := &node{
		stored:      []*checkpoint.Record{record("a", boot, effect(gpuA, "recorded")), record("old", "boot-0", effect(gpuB, "same name"))},
		effects:     []checkpoint.Step{effect(gpuA, "recorded"), effect(gpuA, "leaked"), effect(gpuB, "same name")},
		specs:       []string{"a", "leaked"},
		halfSpecs:   []string{"a", "leaked"},
		halfRecords: []string{"leaked"},
	}
	removed, err := n.collector(t).Collect(t.Context(), nil, true)
	require.NoError(t, err)
	var names []string
	for _, l := range removed {
		names = append(names, l.String())
	}
	assert.Equal(t, []string{
		"CDI spec of claim leaked", "mig on GPU GPU-a", "mig on GPU GPU-b", "unfinished record of claim leaked",
		"unfinished CDI spec of claim a", "unfinished CDI spec of claim leaked",
	}, names)
	assert.Equal(t, []checkpoint.Step{effect(gpuA, "recorded")}, n.effects)
	assert.Equal(t, []string{"a"}, n.specs)
	assert.Empty(t, n.halfSpecs)
	assert.Empty(t, n.halfRecords)
}

func TestCollect_EffectRecordedMeanwhile_Kept(t *testing.T) {
	t.Parallel()
	n := &node{effects: []checkpoint.Step{effect(gpuA, "leaked")}}
	n.locked = func() { n.stored = []*checkpoint.Record{record("a", boot, effect(gpuA, "leaked"))} }
	removed, err := n.collector(t).Collect(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Empty(t, removed)
	assert.Len(t, n.effects, 1)
}

func TestCollect_ContainerWithLostRecord_NothingUndone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inUse    []string
		aside    []string
		complete bool
	}{
		"listed":           {[]string{"lost-mig-1"}, nil, true},
		"not listed yet":   {nil, []string{"lost"}, false},
		"both, incomplete": {[]string{"lost-mig-1"}, []string{"lost"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &node{effects: []checkpoint.Step{effect(gpuA, "leaked")}, specs: []string{"lost"}, aside: c.aside}
			removed, err := n.collector(t).Collect(t.Context(), c.inUse, c.complete)
			require.NoError(t, err)
			assert.Empty(t, removed)
			assert.Len(t, n.effects, 1)
			assert.Equal(t, []string{"lost"}, n.specs)
		})
	}
}

func TestCollect_DependentEffects_UndoneInWhicheverOrderWorks(t *testing.T) {
	t.Parallel()
	n := &node{effects: []checkpoint.Step{effect(gpuA, "base"), effect(gpuA, "on top")}}
	removed, err := n.collector(t).Collect(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Len(t, removed, 2)
	assert.Empty(t, n.effects)

	n.stored = []*checkpoint.Record{record("a", boot, effect(gpuA, "on top"))}
	n.effects = []checkpoint.Step{effect(gpuA, "base"), effect(gpuA, "on top")}
	_, err = n.collector(t).Collect(t.Context(), nil, true)
	require.EqualError(t, err, "undoing leaked mig on GPU GPU-a: another effect depends on it")
	assert.Len(t, n.effects, 2)
}
