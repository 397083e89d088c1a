package driver

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/publish"
)

func TestEveryChangeIsPublished(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	inv := m.look(t)
	s := published{published: make(chan []string, 16)}
	p := NewPublisher(offeringOf(t, inv), publish.Options{NodeName: "n0"}, s)
	both := []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb"}
	assert.Equal(t, both, <-s.published, "before anything runs")

	stop := inBackground(t, p.Run)
	assert.Equal(t, both, <-s.published)
	all := m.gpus
	m.change(t, inv, func() { m.gpus = m.gpus[:1] })
	assert.Equal(t, []string{"gpu-aaaaaaaa"}, <-s.published)
	m.change(t, inv, func() { m.gone = gpu.ErrDriverNotLoaded })
	assert.Empty(t, <-s.published, "an empty pool, and not none")
	m.change(t, inv, func() { m.gone, m.gpus = nil, all })
	assert.Equal(t, both, <-s.published)
	stop()
	assert.Empty(t, s.published, "nothing is published twice")
}

func TestOwedGPUsAreTainted(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	inv := m.look(t)
	s := published{published: make(chan []string, 16)}
	p := NewPublisher(offeringOf(t, inv), publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	p.Owe([]gpu.PendingCleanup{{GPU: inv.Current().Node.GPUs[1].UUID}})
	stop := inBackground(t, p.Run)
	defer stop()
	tainted := []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb gpu.prism.dev/not-released"}
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual(tainted, <-s.published) }, 10*time.Second, time.Millisecond)
	p.Owe(nil)
	require.Eventually(t, func() bool { return !assert.ObjectsAreEqual(tainted, <-s.published) }, 10*time.Second, time.Millisecond)
}

func TestDescribeSaysWhatIsPublished(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	inv := m.look(t)
	s := published{published: make(chan []string, 16)}
	p := NewPublisher(offeringOf(t, inv), publish.Options{NodeName: "n0"}, s)
	<-s.published
	attributes := p.Describe("n0", "gpu-bbbbbbbb")
	require.NotNil(t, attributes["productName"].StringValue)
	assert.Equal(t, "NVIDIA L40S", *attributes["productName"].StringValue)
	assert.Equal(t, "gpu", *attributes["type"].StringValue)
	assert.Nil(t, p.Describe("n0", "gpu-cccccccc"))
	assert.Nil(t, p.Describe("n1", "gpu-bbbbbbbb"))
}

// everything keeps all that was published last.
type everything struct{ last resourceslice.DriverResources }

func (e *everything) Publish(resources resourceslice.DriverResources) { e.last = resources }

// devices lists what is published, with the pool and the values of taints.
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

// TestPublisher_ConflictWithoutTaints_DevicesWithdrawn: every device of every pool goes, whether the plugin knew before that taints are not
// kept or hears of it only then; what prepared claims have is described as before, and all of it is back when the conflict is over.
func TestPublisher_ConflictWithoutTaints_DevicesWithdrawn(t *testing.T) {
	t.Parallel()
	d := opened(t, both)
	s := &everything{}
	p := NewPublisher(d.Offering, publish.Options{DriverName: "gpu.prism.dev", NodeName: "n0"}, s)
	all := s.devices()
	require.NotEmpty(t, all)
	pool, device, _ := strings.Cut(all[len(all)-1], ": ")
	require.NotEqual(t, "n0", pool, "a GPU that is offered in parts has a pool of its own")
	attributes := p.Describe(pool, device)
	require.NotEmpty(t, attributes)
	tainted := make([]string, len(all))
	for i, name := range all {
		tainted[i] = name + " dra-driver"
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"taints are left out without a conflict", p.Untaint, all},
		{"it begins", func() { p.Conflict(publish.ConflictDRADriver, true) }, tainted},
		{"the API server leaves the taints out", p.Untaint, []string{}},
		{"and again", p.Untaint, []string{}},
		{"it ends", func() { p.Conflict("", true) }, all},
		{"it comes again, to a newer API server", func() { p.Conflict(publish.ConflictDRADriver, true) }, tainted},
		{"it ends", func() { p.Conflict("", true) }, all},
		{"it comes again, where taints are known not to be kept", func() { p.Conflict(publish.ConflictDRADriver, false) }, []string{}},
	} {
		step.do()
		p.Publish()
		assert.Equal(t, step.want, s.devices(), step.what)
		assert.Equal(t, attributes, p.Describe(pool, device), step.what)
		assert.Len(t, s.last.Pools["n0"].Slices, 1, "the node's pool says that the driver runs")
		if len(step.want) == 0 {
			assert.Len(t, s.last.Pools, 1, step.what)
		}
		assert.Len(t, d.Devices(), len(all), "what is prepared is still found")
	}
}
