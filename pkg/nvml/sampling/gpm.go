package sampling

import (
	"context"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
)

// wholeGPU is the target that is no GPU instance.
const wholeGPU = -1

const (
	percent    = 0.01
	maxPercent = 100
	mebi       = 1 << 20
)

// gpmSymbols are the functions without which there is no GPM.
var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"}

// gpmMetric is the metrics of GPM whose values make a field: one, or that of each engine, whose mean is the field's.
type gpmMetric struct {
	field      metrics.Field
	ids, count uint32
	scale      float64
	// instance: only GPU instances have the field from GPM, a GPU has a call of its own for it.
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

// gpm is what a GPU has of GPM in this session.
type gpm struct {
	targets map[int]*gpmTarget
	// request is used again for each call: the library copies it, and calls on one GPU come one at a time.
	request *nvml.GpmMetricsGetType
}

// gpmTarget has two samples, which are filled alternately.
type gpmTarget struct {
	samples [2]nvml.GpmSample
	latest  int
	// based: samples[latest] is filled. unsupported: the target has no GPM.
	based, unsupported bool
}

// maxSampleCalls is how many calls a sample takes, the first time.
const maxSampleCalls = 3

// sampleCalls is how many calls the GPU's own sample will take: the first one needs two buffers, and is compared with none.
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

// Sample takes a sample of a target, the GPU or a GPU instance, and sets what came out since the sample before it, which must be at least
// 100 ms old. A baseline sets nothing, nor does a sample after a call that took none. Two calls; the first time three.
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

// request fills in the ids of the metrics and counts them.
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

// target returns the samples of a target, nil where the driver has none to give.
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
		g.gpm.targets[target] = t // at once, so that one sample of two is freed too
	}
	return t, nil
}

// take fills a sample. A GPU that has no GPM of itself, as in MIG mode, is not asked again.
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

// ReleaseSamples frees the samples of a target; one without samples is no error. Two calls.
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
