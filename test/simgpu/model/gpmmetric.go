package model

// gpmMetric is a metric of GPM: the first driver branch with it, and its value from two samples; nil if no board of the catalog supports
// it.
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

// engines reports whether the i-th engine of a kind exists.
func engines(number func(Engines) int, i uint32) func(*gpmSample) bool {
	return func(s *gpmSample) bool {
		e := s.gpu.board.Engines
		if s.instance != nil {
			e = s.instance.profile.Engines
		}
		return int(i) < number(e)
	}
}

// link reports whether an NVLink exists, which GPU instances do not have.
func link(i uint32) func(*gpmSample) bool {
	return func(s *gpmSample) bool { return s.instance == nil && int(i) < s.gpu.board.Sensors().Links }
}

// rate returns the average of a quantity between the samples.
func rate(q Quantity) func(a, b *gpmSample) float64 {
	return func(a, b *gpmSample) float64 { return (b.sums[q] - a.sums[q]) / (b.seconds - a.seconds) }
}

func perLink(f func(a, b *gpmSample) float64) func(a, b *gpmSample) float64 {
	return func(a, b *gpmSample) float64 { return f(a, b) / float64(b.gpu.board.Sensors().Links) }
}

// total converts a quantity in MiB/s to bytes since the driver was loaded.
func total(q Quantity) func(a, b *gpmSample) float64 {
	return func(_, b *gpmSample) float64 { return float64(uint64(b.sums[q] * mebi)) }
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

// linkTraffic returns the direction of a link's metric: even ids from the first receive.
func linkTraffic(i uint32) Quantity {
	if i%2 == 0 {
		return QuantityNVLinkRx
	}
	return QuantityNVLinkTx
}

// gpmSpan is a range of metrics with consecutive numbers; of creates each from its position in the range.
type gpmSpan struct {
	first, last uint32
	of          func(i uint32) gpmMetric
}

// absent are metrics that no board of the catalog has.
func absent(since int) func(uint32) gpmMetric {
	return func(uint32) gpmMetric { return gpmMetric{since: since} }
}

// single returns a metric that every GPU and GPU instance has.
func single(since int, value func(first, second *gpmSample) float64) func(uint32) gpmMetric {
	return func(uint32) gpmMetric { return gpmMetric{since, always, value} }
}

// ofEngine are the metrics of engines.
func ofEngine(since int, q Quantity, number func(Engines) int) func(uint32) gpmMetric {
	return func(i uint32) gpmMetric { return gpmMetric{since, engines(number, i), rate(q)} }
}

// linkRates returns the metrics of links from a number on, two of each link.
func linkRates(since int, first uint32) func(uint32) gpmMetric {
	return func(i uint32) gpmMetric { return gpmMetric{since, link(first + i/2), perLink(rate(linkTraffic(i)))} }
}

var gpmSpans = []gpmSpan{
	{6, 6, single(gpmBranch, nothing)},
	{8, 9, single(gpmBranch, nothing)},
	{20, 20, single(gpmBranch, rate(QuantityPCIeTx))},
	{21, 21, single(gpmBranch, rate(QuantityPCIeRx))},
	{30, 37, ofEngine(gpmBranch, QuantityDecoder, func(e Engines) int { return e.Decoder })},
	{40, 47, ofEngine(gpmBranch, QuantityJPEG, func(e Engines) int { return e.JPEG })},
	{50, 51, ofEngine(gpmBranch, QuantityOFA, func(e Engines) int { return e.OFA })},
	{60, 61, func(i uint32) gpmMetric { return gpmMetric{gpmBranch, link(0), rate(linkTraffic(i))} }},
	{62, 97, linkRates(gpmBranch, 0)},
	{100, 159, absent(gpmC2CBranch)},
	{160, 165, absent(gpmCacheBranch)},
	{166, 169, ofEngine(gpmEncoderBranch, QuantityEncoder, func(e Engines) int { return e.Encoder })},
	{170, 209, absent(gpmEncoderBranch)},
	{212, 247, linkRates(gpmCounterBranch, 18)},
	{248, 248, single(gpmCounterBranch, elapsed)},
	{251, 251, single(gpmCounterBranch, nothing)},
	{253, 254, single(gpmCounterBranch, nothing)},
	{255, 255, single(gpmCounterBranch, total(QuantityPCIeTx))},
	{256, 256, single(gpmCounterBranch, total(QuantityPCIeRx))},
	{261, 404, func(i uint32) gpmMetric {
		return gpmMetric{gpmCounterBranch, link(i / 2), perLink(total(linkTraffic(i)))}
	}},
	{405, 476, linkRates(gpmMoreLinkBranch, 36)},
}

// gpmMetricOf finds a metric; false for an unknown number.
func gpmMetricOf(id uint32) (gpmMetric, bool) {
	if q, ok := gpmPercent[id]; ok {
		return gpmMetric{gpmBranch, always, rate(q)}, true
	}
	if q, ok := gpmCounters[id]; ok {
		return gpmMetric{gpmCounterBranch, always, cycles(q)}, true
	}
	for _, span := range gpmSpans {
		if id >= span.first && id <= span.last {
			return span.of(id - span.first), true
		}
	}
	return gpmMetric{}, false
}
