package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// energies is a GPU whose energy counter is set by a test in each round.
type energies struct {
	t     *testing.T
	sums  metrics.OTelSums
	round int
}

// now is the time of the round; rounds are one minute apart.
func (e *energies) now() time.Time { return at.Add(time.Duration(e.round) * time.Minute) }

// reads adds a round with the value. It returns the sums by pod, "" for the node, and their begin.
func (e *energies) reads(joules float64, list ...metrics.Allocation) (sums map[string]float64, starts map[string]time.Time) {
	e.t.Helper()
	e.round++
	g := board(0, "NVIDIA H100 80GB HBM3", metrics.Hopper)
	g.Began, g.Values = e.now(), metrics.Values{}
	g.Up = joules > 0
	if g.Up {
		memory(&g.Values, 16*gib, gib)
		g.Values.Set(metrics.FieldEnergy, joules)
	}
	sums, starts = map[string]float64{}, map[string]time.Time{}
	for _, r := range e.sums.OTel(join(g, list...), e.now()) {
		pod := text(r.Resource.Set(), "k8s.pod.name")
		for _, m := range r.ScopeMetrics[0].Metrics {
			_, gauge := m.Data.(metricdata.Gauge[float64])
			for _, p := range points(m) {
				assert.Equal(e.t, gauge, p.StartTime.IsZero(), "only sums have a beginning: %s", m.Name)
				if gauge {
					continue
				}
				require.False(e.t, p.StartTime.After(e.now()), m.Name)
				starts[pod] = p.StartTime
				if m.Name == "hw.energy" {
					sums[pod] = p.Value
				}
			}
		}
	}
	return sums, starts
}

// TestOTelSums_ClaimPrepared_CountedFromThere: the container's sum excludes earlier usage of the GPU, and the node's sum excludes usage by
// the container.
func TestOTelSums_ClaimPrepared_CountedFromThere(t *testing.T) {
	t.Parallel()
	e := &energies{t: t}
	sums, _ := e.reads(1000)
	assert.Equal(t, map[string]float64{"": 0}, sums)
	began := e.now()
	sums, starts := e.reads(1100)
	assert.Equal(t, map[string]float64{"": 100}, sums)

	one := allocation("one", gpuID(0), "", "", container("one", "main"))
	one.Since = e.now().Add(10 * time.Second)
	assert.Equal(t, began, starts[""])
	sums, starts = e.reads(1200, one)
	assert.Equal(t, map[string]float64{"one": 0}, sums)
	assert.Equal(t, one.Since, starts["one"])
	sums, _ = e.reads(1230, one)
	assert.Equal(t, map[string]float64{"one": 30}, sums)
	e.reads(0, one)
	sums, starts = e.reads(1250, one)
	assert.Equal(t, map[string]float64{"one": 50}, sums, "the GPU did not answer for a round")
	assert.Equal(t, one.Since, starts["one"], "and the sum goes on")
	sums, _ = e.reads(7, one)
	assert.Equal(t, map[string]float64{"one": 57}, sums, "the driver was loaded again")

	sums, _ = e.reads(20)
	assert.Equal(t, map[string]float64{"": 100}, sums)
	sums, _ = e.reads(25)
	assert.Equal(t, map[string]float64{"": 105}, sums)

	two := allocation("two", gpuID(0), "", "", container("two", "main"))
	two.Since = e.now().Add(10 * time.Second)
	sums, starts = e.reads(40, two)
	assert.Equal(t, map[string]float64{"two": 0}, sums)
	assert.Equal(t, two.Since, starts["two"])
	sums, _ = e.reads(41, two)
	assert.Equal(t, map[string]float64{"two": 1}, sums)
}

// TestOTelSums_ExporterStarts_BeginsWithTheFirstRound: the time when claims were prepared is unknown, and earlier counts are not sent
// twice.
func TestOTelSums_ExporterStarts_BeginsWithTheFirstRound(t *testing.T) {
	t.Parallel()
	e := &energies{t: t}
	one := allocation("one", gpuID(0), "", "", container("one", "main"))
	sums, starts := e.reads(1000, one)
	assert.Equal(t, map[string]float64{"one": 0}, sums)
	assert.Equal(t, e.now(), starts["one"])
	began := e.now()
	sums, starts = e.reads(1001, one)
	assert.Equal(t, map[string]float64{"one": 1}, sums)
	assert.Equal(t, began, starts["one"])
}
