package layout

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/publish"
	"github.com/prism-gpu/prism/test/fakes"
)

// unconfigured is a fixture without a configuration.
func unconfigured(t *testing.T) *fixture {
	t.Helper()
	d := newFixture(t, "")
	require.True(t, d.load(t))
	return d
}

func TestPublisher_LayoutChanges_EachIsPublished(t *testing.T) {
	t.Parallel()
	d := newFixture(t, "")
	m, all := d.machine, d.machine.GPUs
	m.GPUs = all[:1]
	d.restart(t)
	require.True(t, d.load(t))
	s := publishedNames{published: make(chan []string, 16)}
	p := NewPublisher(d.Controller, publish.Options{NodeName: "n0"}, s)
	both := []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb"}
	assert.Equal(t, both[:1], <-s.published, "before anything runs")

	stopPublisher := fakes.Run(t, p.Run)
	stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, p.Renew) })
	inv := d.options.Inventory
	m.Change(t, inv, func() { m.GPUs = all })
	assert.Equal(t, both, <-s.published)
	m.Change(t, inv, func() { m.Gone = gpu.ErrDriverNotLoaded })
	assert.Empty(t, <-s.published, "an empty pool, and not none")
	m.Change(t, inv, func() { m.Gone = nil })
	assert.Equal(t, both, <-s.published)
	stop()
	stopPublisher()
	assert.Empty(t, s.published, "nothing is published twice")
}

// TestPublisher_GPUsNotInspected_NothingPublished: the plugin was started while the GPUs were released, and would withdraw their devices.
func TestPublisher_GPUsNotInspected_NothingPublished(t *testing.T) {
	t.Parallel()
	d := newFixture(t, "")
	d.options.Inventory = d.machine.NewInventory()
	require.True(t, d.load(t))
	s := publishedNames{published: make(chan []string, 16)}
	p := NewPublisher(d.Controller, publish.Options{NodeName: "n0"}, s)
	require.NoError(t, d.options.Inventory.Refresh(t.Context()))
	p.Publish()
	assert.Empty(t, s.published, "the layout is about no GPUs yet")
	require.True(t, d.load(t))
	p.Publish()
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb"}, <-s.published)
}

func TestPublisher_PendingCleanup_DevicesTainted(t *testing.T) {
	t.Parallel()
	d := unconfigured(t)
	s := publishedNames{published: make(chan []string, 16)}
	p := NewPublisher(d.Controller, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	<-s.published
	stop := fakes.Run(t, p.Run)
	defer stop()
	p.SetTaints(Cleanup, publish.CleanupTaints([]gpu.PendingCleanup{{GPU: d.Snapshot().Node.GPUs[1].UUID}}))
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb gpu.prism.dev/not-released"}, <-s.published)
	p.SetTaints(Cleanup, nil)
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb"}, <-s.published)
}

// TestPublisher_SickGPU_TaintedUntilHealthy: the taint follows the layout, and the devices are withdrawn if taints are not stored.
func TestPublisher_SickGPU_TaintedUntilHealthy(t *testing.T) {
	t.Parallel()
	d := unconfigured(t)
	s := publishedNames{published: make(chan []string, 16)}
	p := NewPublisher(d.Controller, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	<-s.published
	stopPublisher := fakes.Run(t, p.Run)
	stop := fakes.Run(t, func(ctx context.Context) error { return d.Run(ctx, p.Renew) })
	sick := publish.TaintRule{Name: "gpu-lost", Value: "lost", GPUs: map[gpu.UUID]bool{d.Snapshot().Node.GPUs[1].UUID: true}, WithoutTaints: publish.WithdrawGPUs}
	p.SetTaints(Health, []publish.TaintRule{sick})
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb gpu.prism.dev/gpu-lost"}, <-s.published)
	p.TaintsStored(false)
	assert.Equal(t, []string{"gpu-aaaaaaaa"}, <-s.published)
	p.SetTaints(Health, nil)
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb"}, <-s.published)
	stop()
	stopPublisher()
}

func TestPublisher_Describe_PublishedAttributes(t *testing.T) {
	t.Parallel()
	s := publishedNames{published: make(chan []string, 16)}
	p := NewPublisher(unconfigured(t).Controller, publish.Options{NodeName: "n0"}, s)
	<-s.published
	attributes := p.Describe("n0", "gpu-bbbbbbbb")
	require.NotNil(t, attributes["productName"].StringValue)
	assert.Equal(t, "NVIDIA L40S", *attributes["productName"].StringValue)
	assert.Equal(t, "gpu", *attributes["type"].StringValue)
	assert.Nil(t, p.Describe("n0", "gpu-cccccccc"))
	assert.Nil(t, p.Describe("n1", "gpu-bbbbbbbb"))
}

// TestPublisher_TypeWithheld_OtherDevicesPublished: such devices of prepared claims are described as before.
func TestPublisher_TypeWithheld_OtherDevicesPublished(t *testing.T) {
	t.Parallel()
	d := opened(t, withWholeAndMPS)
	s := &everything{}
	p := NewPublisher(d.Controller, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	all := s.devices()
	kept := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return strings.HasSuffix(name, "-mps") })
	require.NotEqual(t, all, kept)
	require.NotEmpty(t, kept)
	pool, device, _ := strings.Cut(all[slices.IndexFunc(all, func(name string) bool { return strings.HasSuffix(name, "-mps") })], ": ")
	for _, withheld := range []bool{true, true, false, false, true} {
		p.Withhold(gpu.TypeMPS, withheld)
		p.Publish()
		if want := all; withheld {
			assert.Equal(t, kept, s.devices())
		} else {
			assert.Equal(t, want, s.devices())
		}
		assert.NotEmpty(t, p.Describe(pool, device))
	}
}

// TestPublisher_TypeWithheldAtStart_NothingPublishedUntilKnown: the devices that the previous process published stay. A layout without such
// devices is published, and so is the withdrawal of all devices.
func TestPublisher_TypeWithheldAtStart_NothingPublishedUntilKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries string
		begin   func(p *Publisher)
		held    bool
	}{
		"such devices": {withWholeAndMPS, func(*Publisher) {}, true},
		"no such ones": {both, func(*Publisher) {}, false},
		"withdrawn": {withWholeAndMPS, func(p *Publisher) {
			p.TaintsStored(false)
			p.SetTaints(Conflict, publish.ConflictTaints(publish.ConflictDRADriver))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, s := newFixture(t, c.entries), &everything{}
			p := NewPublisher(d.Controller, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
			p.Withhold(gpu.TypeMPS, true)
			c.begin(p)
			require.True(t, d.load(t))
			d.probe(t)
			p.Publish()
			require.Equal(t, c.held, s.last.Pools == nil)
			if c.held {
				p.Withhold(gpu.TypeMPS, false)
				p.Publish()
				assert.True(t, slices.ContainsFunc(s.devices(), func(name string) bool { return strings.HasSuffix(name, "-mps") }))
			}
		})
	}
}

// everything keeps all that was published last.
type everything struct{ last resourceslice.DriverResources }

func (e *everything) Publish(resources resourceslice.DriverResources) { e.last = resources }

// devices lists the published devices, with the pool and the values of taints.
func (e *everything) devices() []string {
	names := []string{}
	for _, pool := range slices.Sorted(maps.Keys(e.last.Pools)) {
		for _, slice := range e.last.Pools[pool].Slices {
			for i := range slice.Devices {
				name := pool + ": " + slice.Devices[i].Name
				for _, taint := range slice.Devices[i].Taints {
					name += " " + taint.Value
				}
				names = append(names, name)
			}
		}
	}
	return names
}

// TestPublisher_ConflictWithoutTaints_DevicesWithdrawn: every device of every pool is withdrawn, whether it is known before that taints are
// not stored or only then; the devices of prepared claims are described as before, and all devices are back when the conflict is over.
func TestPublisher_ConflictWithoutTaints_DevicesWithdrawn(t *testing.T) {
	t.Parallel()
	d := opened(t, both)
	s := &everything{}
	p := NewPublisher(d.Controller, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	all := s.devices()
	require.NotEmpty(t, all)
	pool, device, _ := strings.Cut(all[len(all)-1], ": ")
	require.NotEqual(t, "n0", pool, "a GPU that is partitioned has a pool of its own")
	attributes := p.Describe(pool, device)
	require.NotEmpty(t, attributes)
	tainted := make([]string, len(all))
	for i, name := range all {
		tainted[i] = name + " dra-driver"
	}
	dropped := func() { p.TaintsStored(false) }
	conflict := func(taints bool) {
		p.TaintsStored(taints)
		p.SetTaints(Conflict, publish.ConflictTaints(publish.ConflictDRADriver))
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"taints are dropped without a conflict", dropped, all},
		{"it begins", func() { conflict(true) }, tainted},
		{"the API server drops the taints", dropped, []string{}},
		{"and again", dropped, []string{}},
		{"it ends", func() { p.SetTaints(Conflict, nil) }, all},
		{"it comes again, to a newer API server", func() { conflict(true) }, tainted},
		{"it ends", func() { p.SetTaints(Conflict, nil) }, all},
		{"it comes again, where taints are known not to be stored", func() { conflict(false) }, []string{}},
	} {
		step.do()
		p.Publish()
		assert.Equal(t, step.want, s.devices(), step.what)
		assert.Equal(t, attributes, p.Describe(pool, device), step.what)
		assert.Len(t, s.last.Pools["n0"].Slices, 1, "the node's pool says that the driver runs")
		if len(step.want) == 0 {
			assert.Len(t, s.last.Pools, 1, step.what)
		}
		assert.Len(t, d.now().Devices(), len(all), "what is prepared is still found")
	}
}
