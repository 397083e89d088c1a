package sampling

import (
	"context"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// wholeGPU is the target for the GPU itself, not a GPU instance.
const wholeGPU = -1

const (
	percent    = 0.01
	maxPercent = 100
	mebi       = 1 << 20
)

// gpmSymbols are the functions that GPM requires.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"}

// gpmMetric lists the GPM metrics of a field: one metric, or one of each engine, whose mean is the value of the field.
type gpmMetric struct {
	field      metrics.Field
	ids, count uint32
	scale      float64
	// instance: GPM provides the field for GPU instances only; for a GPU, another call does.
	instance bool
}

var gpmMetrics = []gpmMetric{
	{field: metrics.FieldUtilization, ids: 1, count: 1, scale: percent, instance: true},
	{field: metrics.FieldGraphicsActive, ids: 1, count: 1, scale: percent},
	{field: metrics.FieldSMActive, ids: 2, count: 1, scale: percent},
	{field: metrics.FieldSMOccupancy, ids: 3, count: 1, scale: percent},
	{field: metrics.FieldIntegerActive, ids: 4, count: 1, scale: percent},
	{field: metrics.FieldTensorActive, ids: 5, count: 1, scale: percent},
	{field: metrics.FieldDRAMActive, ids: 10, count: 1, scale: percent},
	{field: metrics.FieldFP64Active, ids: 11, count: 1, scale: percent},
	{field: metrics.FieldFP32Active, ids: 12, count: 1, scale: percent},
	{field: metrics.FieldFP16Active, ids: 13, count: 1, scale: percent},
	{field: metrics.FieldPCIeTransmitRate, ids: 20, count: 1, scale: mebi},
	{field: metrics.FieldPCIeReceiveRate, ids: 21, count: 1, scale: mebi},
	{field: metrics.FieldUtilizationDecoder, ids: 30, count: 8, scale: percent, instance: true},
	{field: metrics.FieldUtilizationJPEG, ids: 40, count: 8, scale: percent, instance: true},
	{field: metrics.FieldUtilizationOFA, ids: 50, count: 2, scale: percent, instance: true},
	{field: metrics.FieldNVLinkReceiveRate, ids: 60, count: 1, scale: mebi},
	{field: metrics.FieldNVLinkTransmitRate, ids: 61, count: 1, scale: mebi},
	{field: metrics.FieldUtilizationEncoder, ids: 166, count: 4, scale: percent, instance: true},
}

// gpm is the GPM state of a GPU in this session.
type gpm struct {
	targets map[int]*gpmTarget
	// request is reused for each call: the library copies it, and there is only one call on a GPU at a time.
	request *nvml.GpmMetricsGetType
}

// gpmTarget holds two samples, which are filled alternately.
type gpmTarget struct {
	samples [2]nvml.GpmSample
	latest  int
	// based: samples[latest] is filled. unsupported: the target does not support GPM.
	based, unsupported bool
}

// maxSampleCalls is the number of calls for the first sample.
const maxSampleCalls = 3

// sampleCalls returns the number of calls for the GPU's own next sample: the first one allocates two buffers, and has no earlier sample to
// compare with.
func (g *device) sampleCalls() int {
	t := g.gpm.targets[wholeGPU]
	switch {
	case !g.identity.GPM, t != nil && t.unsupported:
		return 0
	case t == nil:
		return maxSampleCalls
	default:
		return 2
	}
}

// Sample takes a sample of a target, the GPU or a GPU instance, and sets the values since the previous sample, which must be at least 100
// ms old. A baseline sets no values, nor does a sample after a call that took none. It costs two calls; the first time three.
func (d *Driver) Sample(ctx context.Context, id gpu.UUID, target int, fields metrics.FieldSet, baseline bool, into *metrics.Values) error {
	return d.group(ctx, id, func(ctx context.Context, g *device) error { return g.sample(ctx, target, fields, baseline, into) })
}

func (g *device) sample(ctx context.Context, target int, fields metrics.FieldSet, baseline bool, into *metrics.Values) error {
	if !g.identity.GPM {
		return nil
	}
	count := g.request(target, fields)
	if count == 0 {
		if t := g.gpm.targets[target]; t != nil {
			t.based = false // its sample may be old when fields of GPM are wanted again
		}
		return nil
	}
	t, err := g.target(ctx, target)
	if err != nil || t == nil || t.unsupported {
		return err
	}
	older, next := t.latest, 1-t.latest
	baseline = baseline || !t.based
	if taken, err := g.take(ctx, target, t.samples[next]); err != nil || !taken {
		t.based = false
		return err
	}
	t.latest, t.based = next, true
	if baseline {
		return nil
	}
	r := g.gpm.request
	r.NumMetrics, r.Sample1, r.Sample2 = count, t.samples[older], t.samples[next]
	_, ok, err := passing(ctx, g, "nvmlGpmMetricsGet", func() (none, nvml.Return) { return none{}, g.driver.lib.GpmMetricsGet(r) })
	if err != nil || !ok {
		return err
	}
	setMetrics(target, fields, r.Metrics[:count], into)
	return nil
}

// request fills in the IDs of the metrics and returns their number.
func (g *device) request(target int, fields metrics.FieldSet) uint32 {
	if g.gpm.request == nil {
		g.gpm.request = &nvml.GpmMetricsGetType{}
	}
	count := uint32(0)
	for i := range gpmMetrics {
		m := &gpmMetrics[i]
		if !m.wanted(target, fields) {
			continue
		}
		for id := range m.count {
			g.gpm.request.Metrics[count] = nvml.GpmMetric{MetricId: m.ids + id, NvmlReturn: uint32(nvml.ERROR_UNKNOWN)}
			count++
		}
	}
	return count
}

func (m *gpmMetric) wanted(target int, fields metrics.FieldSet) bool {
	return fields.Has(m.field) && (!m.instance || target != wholeGPU)
}

// setMetrics sets the fields from the answers to request. A ratio above 1 is an error of the driver and no value.
func setMetrics(target int, fields metrics.FieldSet, answers []nvml.GpmMetric, into *metrics.Values) {
	next := 0
	for i := range gpmMetrics {
		m := &gpmMetrics[i]
		if !m.wanted(target, fields) {
			continue
		}
		sum, known := 0., 0
		for _, a := range answers[next : next+int(m.count)] {
			valid := nvml.Return(a.NvmlReturn) == nvml.SUCCESS && !math.IsNaN(a.Value) && a.Value >= 0 //nolint:gosec // NVML's code
			if valid && (m.scale != percent || a.Value <= maxPercent) {
				sum, known = sum+a.Value, known+1
			}
		}
		next += int(m.count)
		if known > 0 {
			into.Set(m.field, sum/float64(known)*m.scale)
		}
	}
}

// target returns the samples of a target, nil if the driver cannot allocate them.
func (g *device) target(ctx context.Context, target int) (*gpmTarget, error) {
	if t := g.gpm.targets[target]; t != nil {
		return t, nil
	}
	t := &gpmTarget{}
	for i := range t.samples {
		sample, ok, err := passing(ctx, g, "nvmlGpmSampleAlloc", g.driver.lib.GpmSampleAlloc)
		if err != nil || !ok {
			return nil, err
		}
		t.samples[i] = sample
		if g.gpm.targets == nil {
			g.gpm.targets = map[int]*gpmTarget{}
		}
		g.gpm.targets[target] = t // now, so that a single sample is freed too
	}
	return t, nil
}

// take fills a sample. A GPU without GPM of its own, as in MIG mode, is not asked again.
func (g *device) take(ctx context.Context, target int, sample nvml.GpmSample) (bool, error) {
	const ofGPU, ofInstance = "nvmlGpmSampleGet", "nvmlGpmMigSampleGet"
	if target != wholeGPU {
		_, ok, err := passing(ctx, g, ofInstance, func() (none, nvml.Return) { return none{}, sample.MigGet(g.handle, target) })
		return ok, err
	}
	_, ok, err := value(ctx, g, ofGPU, func() (none, nvml.Return) { return none{}, sample.Get(g.handle) })
	g.gpm.targets[target].unsupported = g.unsupported[ofGPU]
	return ok, err
}

// ReleaseSamples frees the samples of a target in two calls; a target without samples is no error.
func (d *Driver) ReleaseSamples(ctx context.Context, id gpu.UUID, target int) error {
	return d.group(ctx, id, func(ctx context.Context, g *device) error { return g.release(ctx, target) })
}

func (g *device) release(ctx context.Context, target int) error {
	t := g.gpm.targets[target]
	if t == nil {
		return nil
	}
	for i, sample := range t.samples {
		if sample == nil {
			continue
		}
		if _, _, err := passing(ctx, g, "nvmlGpmSampleFree", func() (none, nvml.Return) { return none{}, sample.Free() }); err != nil {
			return err
		}
		t.samples[i] = nil
	}
	delete(g.gpm.targets, target)
	return nil
}
