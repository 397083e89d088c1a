package exporter

import (
	"github.com/prism-gpu/prism/pkg/metrics"
)

// roundKey names what a round is made of.
type roundKey struct {
	samples, allocations uint64
	selection            *metrics.Selection
	sources              string
}

// round is what pages, claims' files and OTLP say until something changes. It is joined when it is first needed.
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
