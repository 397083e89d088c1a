package sampling

import (
	"context"
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/metrics"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// maxCalls is how many calls a round on a GPU may take, those for its MIG devices left out. What is read by rotation gets what is left. A
// round that finds the MIG mode changed reads the GPU's identity again, beyond that.
const maxCalls = 20

// mega converts MHz.
const mega = 1e6

// reading is a value that a call brought.
type reading struct {
	field metrics.Field
	value float64
}

// set notes the readings of the fields.
func set(readings []reading, fields metrics.FieldSet, into *metrics.Values) {
	for _, r := range readings {
		if fields.Has(r.field) {
			into.Set(r.field, r.value)
		}
	}
}

// reader is a call that brings values of those fields.
type reader struct {
	fields metrics.FieldSet
	read   func(ctx context.Context, g *device, out []reading) ([]reading, error)
}

var memoryFields = metrics.NewFieldSet(
	metrics.FieldMemoryTotal, metrics.FieldMemoryUsed, metrics.FieldMemoryFree, metrics.FieldMemoryReserved)

// eachRound are read in each round, rotated a few of them a round: they change rarely, or matter little from one round to the next.
var (
	eachRound = []reader{
		{memoryFields, func(ctx context.Context, g *device, out []reading) ([]reading, error) {
			return readMemory(ctx, g, g.handle, false, out)
		}},
		{metrics.NewFieldSet(metrics.FieldTemperatureGPU), readTemperature},
		{metrics.NewFieldSet(metrics.FieldUtilization, metrics.FieldUtilizationMemory), readUtilization},
		clock(metrics.FieldClockSM, nvml.CLOCK_SM, "SM clock"),
		clock(metrics.FieldClockMemory, nvml.CLOCK_MEM, "memory clock"),
		{metrics.NewFieldSet(metrics.FieldClockEventReasons), readReasons},
		without(metrics.FieldPowerUsage, number(metrics.FieldPowerUsage, "nvmlDeviceGetPowerUsage", milli, nvml.Device.GetPowerUsage)),
	}
	rotated = []reader{
		percentOf(metrics.FieldUtilizationEncoder, "nvmlDeviceGetEncoderUtilization", nvml.Device.GetEncoderUtilization),
		percentOf(metrics.FieldUtilizationDecoder, "nvmlDeviceGetDecoderUtilization", nvml.Device.GetDecoderUtilization),
		percentOf(metrics.FieldUtilizationJPEG, "nvmlDeviceGetJpgUtilization", nvml.Device.GetJpgUtilization),
		percentOf(metrics.FieldUtilizationOFA, "nvmlDeviceGetOfaUtilization", nvml.Device.GetOfaUtilization),
		number(metrics.FieldPerformanceState, "nvmlDeviceGetPerformanceState", 1, performanceState),
		clock(metrics.FieldClockGraphics, nvml.CLOCK_GRAPHICS, "graphics clock"),
		clock(metrics.FieldClockVideo, nvml.CLOCK_VIDEO, "video clock"),
		number(metrics.FieldPCIeLinkGeneration, "nvmlDeviceGetCurrPcieLinkGeneration", 1, nvml.Device.GetCurrPcieLinkGeneration),
		number(metrics.FieldPCIeLinkWidth, "nvmlDeviceGetCurrPcieLinkWidth", 1, nvml.Device.GetCurrPcieLinkWidth),
		{metrics.NewFieldSet(metrics.FieldBAR1Total, metrics.FieldBAR1Used), readBAR1},
		number(metrics.FieldFanSpeed, "nvmlDeviceGetFanSpeed", percent, nvml.Device.GetFanSpeed),
		{metrics.NewFieldSet(metrics.FieldVGPULicense), readLicense},
		without(metrics.FieldPowerLimit,
			number(metrics.FieldPowerLimit, "nvmlDeviceGetEnforcedPowerLimit", milli, nvml.Device.GetEnforcedPowerLimit)),
	}
)

// rotation remembers what the readers of rotated brought last, and which is next.
type rotation struct {
	next int
	last map[int][]reading
}

// Values reads the GPU's own fields, those of GPM left out: one call for all field values, and one for each further reader.
func (d *Driver) Values(ctx context.Context, id gpu.UUID, fields metrics.FieldSet, into *metrics.Values) error {
	return d.group(ctx, id, func(ctx context.Context, g *device) error { return g.read(ctx, fields, into) })
}

func (g *device) read(ctx context.Context, fields metrics.FieldSet, into *metrics.Values) error {
	if err := g.fields.read(ctx, g, fields, into); err != nil {
		return err
	}
	var buffer [4]reading
	for i := range eachRound {
		if !eachRound[i].fields.Meets(fields) {
			continue
		}
		readings, err := eachRound[i].read(ctx, g, buffer[:0])
		if err != nil {
			return err
		}
		set(readings, fields, into)
	}
	return g.readRotated(ctx, fields, into)
}

// readRotated reads as many of the readers as the round has calls left for, at least one so that each has its turn, and sets what they and
// the others brought last.
func (g *device) readRotated(ctx context.Context, fields metrics.FieldSet, into *metrics.Values) error {
	t := &g.rotation
	if t.last == nil {
		t.last = map[int][]reading{}
	}
	left := max(1, maxCalls-g.calls-g.sampleCalls())
	for range rotated {
		if left <= 0 {
			break
		}
		i := t.next
		t.next = (t.next + 1) % len(rotated)
		if !rotated[i].fields.Meets(fields) {
			delete(t.last, i)
			continue
		}
		before := g.calls
		readings, err := rotated[i].read(ctx, g, t.last[i][:0])
		if err != nil {
			return err
		}
		t.last[i] = readings
		left -= g.calls - before
	}
	for _, readings := range t.last {
		set(readings, fields, into)
	}
	return nil
}

// without is a reader for GPUs that have no field value for the field.
func without(field metrics.Field, r reader) reader {
	read := r.read
	r.read = func(ctx context.Context, g *device, out []reading) ([]reading, error) {
		if !g.fields.exhausted(field) {
			return out, nil
		}
		return read(ctx, g, out)
	}
	return r
}

// number is a reader of one field.
func number[T int | uint32](field metrics.Field, symbol string, scale float64, fn func(nvml.Device) (T, nvml.Return)) reader {
	return reader{metrics.NewFieldSet(field), func(ctx context.Context, g *device, out []reading) ([]reading, error) {
		v, ok, err := value(ctx, g, symbol, func() (T, nvml.Return) { return fn(g.handle) })
		if err != nil || !ok || scale == percent && v > maxPercent {
			return out, err
		}
		return append(out, reading{field, float64(v) * scale}), nil
	}}
}

// percentOf is a reader of an engine's utilization.
func percentOf(field metrics.Field, symbol string, fn func(nvml.Device) (uint32, uint32, nvml.Return)) reader {
	return number(field, symbol, percent, func(device nvml.Device) (uint32, nvml.Return) {
		utilization, _, ret := fn(device)
		return utilization, ret
	})
}

func clock(field metrics.Field, kind nvml.ClockType, question string) reader {
	return reader{metrics.NewFieldSet(field), func(ctx context.Context, g *device, out []reading) ([]reading, error) {
		v, ok, err := valueAs(ctx, g, question, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return g.handle.GetClockInfo(kind) })
		if err != nil || !ok {
			return out, err
		}
		return append(out, reading{field, float64(v) * mega}), nil
	}}
}

func performanceState(device nvml.Device) (int, nvml.Return) {
	state, ret := device.GetPerformanceState()
	if ret == nvml.SUCCESS && state > nvml.PSTATE_15 {
		ret = nvml.ERROR_UNKNOWN // NVML's "unknown" is a number too
	}
	return int(state), ret
}

// readMemory reads a GPU's memory or a MIG device's. A driver before version 2 counts what is reserved as used: then only total and free
// are known. What a MIG device does not support is asked again: the answer is no property of the GPU, whose next MIG device may support it.
func readMemory(ctx context.Context, g *device, handle nvml.Device, mig bool, out []reading) ([]reading, error) {
	const latest = "nvmlDeviceGetMemoryInfo_v2"
	if mig || !g.unsupported[latest] {
		m, err := must(ctx, g, latest, handle.GetMemoryInfo_v2)
		var unsupported *gpu.UnsupportedError
		switch {
		case err == nil:
			return append(out,
				reading{metrics.FieldMemoryTotal, float64(m.Total)}, reading{metrics.FieldMemoryUsed, float64(m.Used)},
				reading{metrics.FieldMemoryFree, float64(m.Free)}, reading{metrics.FieldMemoryReserved, float64(m.Reserved)}), nil
		case !errors.As(err, &unsupported):
			return out, library.Fatal(ctx, err)
		case !mig:
			g.unsupported[latest] = true
		}
	}
	old, ok, err := passing(ctx, g, "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo)
	if err != nil || !ok {
		return out, err
	}
	return append(out, reading{metrics.FieldMemoryTotal, float64(old.Total)}, reading{metrics.FieldMemoryFree, float64(old.Free)}), nil
}

func readTemperature(ctx context.Context, g *device, out []reading) ([]reading, error) {
	v, ok, err := value(ctx, g, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return g.handle.GetTemperature(nvml.TEMPERATURE_GPU) // drivers before 13.0 have no other
	})
	if err != nil {
		return out, err
	}
	if ok {
		return append(out, reading{metrics.FieldTemperatureGPU, float64(v)}), nil
	}
	if !g.unsupported["nvmlDeviceGetTemperature"] {
		return out, nil
	}
	later, ok, err := value(ctx, g, "nvmlDeviceGetTemperatureV", func() (nvml.Temperature, nvml.Return) {
		return g.handle.GetTemperatureV().V1()
	})
	if err != nil || !ok {
		return out, err
	}
	return append(out, reading{metrics.FieldTemperatureGPU, float64(later.Temperature)}), nil
}

func readUtilization(ctx context.Context, g *device, out []reading) ([]reading, error) {
	u, ok, err := value(ctx, g, "nvmlDeviceGetUtilizationRates", g.handle.GetUtilizationRates)
	if err != nil || !ok {
		return out, err
	}
	if u.Gpu <= maxPercent {
		out = append(out, reading{metrics.FieldUtilization, float64(u.Gpu) * percent})
	}
	if u.Memory <= maxPercent {
		out = append(out, reading{metrics.FieldUtilizationMemory, float64(u.Memory) * percent})
	}
	return out, nil
}

// readReasons takes the bits by the name that drivers before 535 have where the other is missing.
func readReasons(ctx context.Context, g *device, out []reading) ([]reading, error) {
	bits, ok, err := value(ctx, g, "nvmlDeviceGetCurrentClocksEventReasons", g.handle.GetCurrentClocksEventReasons)
	if err == nil && g.unsupported["nvmlDeviceGetCurrentClocksEventReasons"] {
		bits, ok, err = value(ctx, g, "nvmlDeviceGetCurrentClocksThrottleReasons", g.handle.GetCurrentClocksThrottleReasons)
	}
	if err != nil || !ok {
		return out, err
	}
	return append(out, reading{metrics.FieldClockEventReasons, float64(bits)}), nil
}

func readBAR1(ctx context.Context, g *device, out []reading) ([]reading, error) {
	m, ok, err := value(ctx, g, "nvmlDeviceGetBAR1MemoryInfo", g.handle.GetBAR1MemoryInfo)
	if err != nil || !ok {
		return out, err
	}
	return append(out, reading{metrics.FieldBAR1Total, float64(m.Bar1Total)}, reading{metrics.FieldBAR1Used, float64(m.Bar1Used)}), nil
}

// readLicense has no value where the GPU needs no license.
func readLicense(ctx context.Context, g *device, out []reading) ([]reading, error) {
	l, ok, err := valueAs(ctx, g, "license", "nvmlDeviceGetGridLicensableFeatures_v4", g.handle.GetGridLicensableFeatures)
	if err != nil || !ok {
		return out, err
	}
	if l.IsGridLicenseSupported == 0 {
		g.unsupported["license"] = true
		return out, nil
	}
	held := 0.
	for i := range min(int(l.LicensableFeaturesCount), len(l.GridLicensableFeatures)) {
		if l.GridLicensableFeatures[i].FeatureState != 0 {
			held = 1
		}
	}
	return append(out, reading{metrics.FieldVGPULicense, held}), nil
}
