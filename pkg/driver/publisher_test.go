package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/publish"
)

func TestEveryChangeIsPublished(t *testing.T) {
	t.Parallel()
	m := twoGPUs()
	inv := m.look(t)
	s := published{published: make(chan []string, 16)}
	p := NewPublisher(offeringOf(t, inv), publish.Options{NodeName: "n0"}, s)
	both := []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb", "gpu-aaaaaaaa-monitor", "gpu-bbbbbbbb-monitor"}
	assert.Equal(t, both, <-s.published, "before anything runs")

	stop := inBackground(t, p.Run)
	assert.Equal(t, both, <-s.published)
	all := m.gpus
	m.change(t, inv, func() { m.gpus = m.gpus[:1] })
	assert.Equal(t, []string{"gpu-aaaaaaaa", "gpu-aaaaaaaa-monitor"}, <-s.published)
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
	p.Owe([]gpu.Debt{{GPU: inv.Current().Node.GPUs[1].UUID}})
	stop := inBackground(t, p.Run)
	defer stop()
	tainted := []string{"gpu-aaaaaaaa", "gpu-bbbbbbbb gpu.prism.dev/not-released", "gpu-aaaaaaaa-monitor", "gpu-bbbbbbbb-monitor"}
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
