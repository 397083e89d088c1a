package exporter

import (
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// roundKey identifies the inputs of a round.
type roundKey struct {
	samples, allocations uint64
	selection            *metrics.Selection
	sources              string
}

// round is the source of pages, files of claims and OTLP until something changes. It is joined at the first use.
type round struct {
	key  roundKey
	join func() *metrics.Joined
}

func (r *round) append(to []byte, page format) []byte {
	if page == dcgmText {
		return r.join().AppendDCGM(to, r.key.selection)
	}
	return r.join().AppendNative(to, page == nativeOpenMetrics)
}
