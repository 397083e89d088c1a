package model

// gpmMetric is a metric of GPM: the first driver branch that has it, and its value from two samples, nil for one that no
// board of the catalog has.
type gpmMetric struct {
	since int
	has   func(*gpmSample) bool
	value func(first, second *gpmSample) float64
}

// Driver branches whose libraries know more metrics.
const (
	gpmBranch         = 520
	gpmC2CBranch      = 550
	gpmCacheBranch    = 560
	gpmEncoderBranch  = 570
	gpmCounterBranch  = 590
	gpmMoreLinkBranch = 615
)

var gpmPercent = map[uint32]Quantity{
	1: QuantityGraphics, 2: QuantitySM, 3: QuantityOccupancy, 4: QuantityInteger, 5: QuantityTensor, 7: QuantityTensor,
	10: QuantityDRAM, 11: QuantityFP64, 12: QuantityFP32, 13: QuantityFP16,
}

// gpmCounters are the metrics that count cycles of the quantity since the GPU was initialised.
var gpmCounters = map[uint32]Quantity{
	249: QuantitySM, 250: QuantityTensor, 252: QuantityTensor, 257: QuantityInteger, 258: QuantityFP64, 259: QuantityFP32, 260: QuantityFP16,
}

func always(*gpmSample) bool { return true }

// engines has the metric of an engine that exists so often.
func engines(number func(Engines) int, i uint32) func(*gpmSample) bool {
	return func(s *gpmSample) bool {
		e := s.gpu.board.Engines
		if s.instance != nil {
			e = s.instance.profile.Engines
		}
		return int(i) < number(e)
	}
}

// link has the metric of an NVLink, which GPU instances do not have.
func link(i uint32) func(*gpmSample) bool {
	return func(s *gpmSample) bool { return s.instance == nil && int(i) < s.gpu.board.Sensors().Links }
}

// rate is the average of a quantity between the samples.
func rate(q Quantity) func(a, b *gpmSample) float64 {
	return func(a, b *gpmSample) float64 { return (b.sums[q] - a.sums[q]) / (b.seconds - a.seconds) }
}

func perLink(f func(a, b *gpmSample) float64) func(a, b *gpmSample) float64 {
	return func(a, b *gpmSample) float64 { return f(a, b) / float64(b.gpu.board.Sensors().Links) }
}

// total is a quantity since the driver was loaded.
func total(q Quantity, factor float64) func(a, b *gpmSample) float64 {
	return func(_, b *gpmSample) float64 { return float64(uint64(b.sums[q] * factor)) }
}

func nothing(_, _ *gpmSample) float64 { return 0 }

func cycles(q Quantity) func(a, b *gpmSample) float64 {
	return func(_, b *gpmSample) float64 {
		return float64(uint64(b.sums[q] / 100 * float64(b.gpu.board.Product.PerfClockHz)))
	}
}

func elapsed(_, b *gpmSample) float64 {
	return float64(uint64(b.seconds * float64(b.gpu.board.Product.PerfClockHz)))
}

// linkTraffic is the direction of a metric of a link: even ids from the first receive.
func linkTraffic(i uint32) Quantity {
	if i%2 == 0 {
		return QuantityNVLinkRx
	}
	return QuantityNVLinkTx
}

// gpmMetricOf finds a metric; false for a number that is none.
func gpmMetricOf(id uint32) (gpmMetric, bool) {
	if q, ok := gpmPercent[id]; ok {
		return gpmMetric{gpmBranch, always, rate(q)}, true
	}
	if q, ok := gpmCounters[id]; ok {
		return gpmMetric{gpmCounterBranch, always, cycles(q)}, true
	}
	switch {
	case id == 6 || id == 8 || id == 9:
		return gpmMetric{gpmBranch, always, nothing}, true
	case id == 20:
		return gpmMetric{gpmBranch, always, rate(QuantityPCIeTx)}, true
	case id == 21:
		return gpmMetric{gpmBranch, always, rate(QuantityPCIeRx)}, true
	case id >= 30 && id <= 37:
		return gpmMetric{gpmBranch, engines(func(e Engines) int { return e.Decoder }, id-30), rate(QuantityDecoder)}, true
	case id >= 40 && id <= 47:
		return gpmMetric{gpmBranch, engines(func(e Engines) int { return e.JPEG }, id-40), rate(QuantityJPEG)}, true
	case id == 50 || id == 51:
		return gpmMetric{gpmBranch, engines(func(e Engines) int { return e.OFA }, id-50), rate(QuantityOFA)}, true
	case id == 60 || id == 61:
		return gpmMetric{gpmBranch, link(0), rate(linkTraffic(id - 60))}, true
	case id >= 62 && id <= 97:
		return gpmMetric{gpmBranch, link((id - 62) / 2), perLink(rate(linkTraffic(id - 62)))}, true
	}
	return laterMetric(id)
}

// laterMetric finds a metric that drivers after the first ones know.
func laterMetric(id uint32) (gpmMetric, bool) {
	switch {
	case id >= 100 && id <= 159:
		return gpmMetric{since: gpmC2CBranch}, true
	case id >= 160 && id <= 165:
		return gpmMetric{since: gpmCacheBranch}, true
	case id >= 166 && id <= 169:
		return gpmMetric{gpmEncoderBranch, engines(func(e Engines) int { return e.Encoder }, id-166), rate(QuantityEncoder)}, true
	case id >= 170 && id <= 209:
		return gpmMetric{since: gpmEncoderBranch}, true
	case id >= 212 && id <= 247:
		return gpmMetric{gpmCounterBranch, link(18 + (id-212)/2), perLink(rate(linkTraffic(id - 212)))}, true
	case id == 248:
		return gpmMetric{gpmCounterBranch, always, elapsed}, true
	case id == 251 || id == 253 || id == 254:
		return gpmMetric{gpmCounterBranch, always, nothing}, true
	case id == 255:
		return gpmMetric{gpmCounterBranch, always, total(QuantityPCIeTx, mebi)}, true
	case id == 256:
		return gpmMetric{gpmCounterBranch, always, total(QuantityPCIeRx, mebi)}, true
	case id >= 261 && id <= 404:
		return gpmMetric{gpmCounterBranch, link((id - 261) / 2), perLink(total(linkTraffic(id-261), mebi))}, true
	case id >= 405 && id <= 476:
		return gpmMetric{gpmMoreLinkBranch, link(36 + (id-405)/2), perLink(rate(linkTraffic(id - 405)))}, true
	}
	return gpmMetric{}, false
}
