package sampling

import (
	"context"
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// maxCalls limits the calls of a round on a GPU, without calls for its MIG devices. Values that are read by rotation use the remaining
// calls. A round that finds a changed MIG mode exceeds the limit to read the GPU's identity again.
const maxCalls = 20

// mega converts MHz.
const mega = 1e6

// reading is a value from a call.
type reading struct {
	field metrics.Field
	value float64
}

// set stores the readings of the fields.
func set(readings []reading, fields metrics.FieldSet, into *metrics.Values) {
	for _, r := range readings {
		if fields.Has(r.field) {
			into.Set(r.field, r.value)
		}
	}
}

// reader is a call that reads these fields.
type reader struct {
	fields metrics.FieldSet
	read   func(ctx context.Context, g *device, out []reading) ([]reading, error)
}

var memoryFields = metrics.NewFieldSet(
	metrics.FieldMemoryTotal, metrics.FieldMemoryUsed, metrics.FieldMemoryFree, metrics.FieldMemoryReserved)

// eachRound are read in each round. Of rotated, only a few are read in a round: they change rarely, or are less important.
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
		without(metrics.FieldPowerUsage, readNumber(metrics.FieldPowerUsage, "nvmlDeviceGetPowerUsage", milli, nvml.Device.GetPowerUsage)),
	}
	rotated = []reader{
		readPercent(metrics.FieldUtilizationEncoder, "nvmlDeviceGetEncoderUtilization", nvml.Device.GetEncoderUtilization),
		readPercent(metrics.FieldUtilizationDecoder, "nvmlDeviceGetDecoderUtilization", nvml.Device.GetDecoderUtilization),
		readPercent(metrics.FieldUtilizationJPEG, "nvmlDeviceGetJpgUtilization", nvml.Device.GetJpgUtilization),
		readPercent(metrics.FieldUtilizationOFA, "nvmlDeviceGetOfaUtilization", nvml.Device.GetOfaUtilization),
		readNumber(metrics.FieldPerformanceState, "nvmlDeviceGetPerformanceState", 1, performanceState),
		clock(metrics.FieldClockGraphics, nvml.CLOCK_GRAPHICS, "graphics clock"),
		clock(metrics.FieldClockVideo, nvml.CLOCK_VIDEO, "video clock"),
		readNumber(metrics.FieldPCIeLinkGeneration, "nvmlDeviceGetCurrPcieLinkGeneration", 1, nvml.Device.GetCurrPcieLinkGeneration),
		readNumber(metrics.FieldPCIeLinkWidth, "nvmlDeviceGetCurrPcieLinkWidth", 1, nvml.Device.GetCurrPcieLinkWidth),
		{metrics.NewFieldSet(metrics.FieldBAR1Total, metrics.FieldBAR1Used), readBAR1},
		readNumber(metrics.FieldFanSpeed, "nvmlDeviceGetFanSpeed", percent, nvml.Device.GetFanSpeed),
		{metrics.NewFieldSet(metrics.FieldVGPULicense), readLicense},
		without(metrics.FieldPowerLimit,
			readNumber(metrics.FieldPowerLimit, "nvmlDeviceGetEnforcedPowerLimit", milli, nvml.Device.GetEnforcedPowerLimit)),
	}
)

// rotation remembers the last readings of the rotated readers, and the next reader.
type rotation struct {
	next int
	last map[int][]reading
}

// Values reads the GPU's own fields without GPM: one call for all field values, and one for each further reader.
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

// readRotated calls as many readers as the round allows, at least one so that each is called at some time, and sets the last readings of
// all readers.
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

// without returns a reader for GPUs that do not report the field as a field value.
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

// readNumber returns a reader of one field.
func readNumber[T int | uint32](field metrics.Field, symbol string, scale float64, fn func(nvml.Device) (T, nvml.Return)) reader {
	return reader{metrics.NewFieldSet(field), func(ctx context.Context, g *device, out []reading) ([]reading, error) {
		v, ok, err := value(ctx, g, symbol, func() (T, nvml.Return) { return fn(g.handle) })
		if err != nil || !ok || scale == percent && v > maxPercent {
			return out, err
		}
		return append(out, reading{field, float64(v) * scale}), nil
	}}
}

// readPercent returns a reader of an engine's utilization.
func readPercent(field metrics.Field, symbol string, fn func(nvml.Device) (uint32, uint32, nvml.Return)) reader {
	return readNumber(field, symbol, percent, func(device nvml.Device) (uint32, nvml.Return) {
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

// readMemory reads the memory of a GPU or MIG device. Drivers without version 2 of the call count reserved memory as used: then only total
// and free are known. A call that a MIG device does not support is repeated in later rounds: the GPU's next MIG device may support it.
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
		return g.handle.GetTemperature(nvml.TEMPERATURE_GPU) // drivers before 13.0 have only this function
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

// readReasons reads the bits by the function of drivers before 535 if the newer function is missing.
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

// readLicense sets no value if the GPU needs no license.
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
