package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

const (
	// otlpTimeout limits the time to send one round.
	otlpTimeout = 10 * time.Second
	// otlpMessage limits the logged part of a collector's answer, in bytes.
	otlpMessage = 1024
)

// otlpRetry sends a request again if a collector asks for it, after its Retry-After and within the time of a round: the next round has
// newer values.
var otlpRetry = otlpmetrichttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: otlpTimeout / 2, MaxElapsedTime: otlpTimeout}

// send sends each round by OTLP until the context ends. The exporter does not fail if a collector does not answer: the next round is sent
// to it again.
func (e *Exporter) send(ctx context.Context) error {
	if e.cfg.OTLPEndpoint == "" {
		<-ctx.Done()
		return nil
	}
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(e.cfg.OTLPEndpoint),
		otlpmetrichttp.WithRetry(otlpRetry), otlpmetrichttp.WithTimeout(otlpTimeout))
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	var sent *round
	var sums metrics.OTelSums
	said := ""
	for {
		select {
		case <-ctx.Done():
			return exporter.Shutdown(context.WithoutCancel(ctx))
		case <-e.adapters.After(e.cfg.Sampling.Interval.Duration):
		}
		now := e.now()
		if now == sent || now.key.samples == 0 {
			continue
		}
		sent = now
		err := sendRound(ctx, exporter, sums.OTel(now.join(), time.Now()), instrumentation.Scope{Name: "prism-exporter", Version: e.adapters.Version})
		if err != nil && ctx.Err() == nil {
			e.otlpErrors.Add(1)
			if err.Error() != said {
				klog.FromContext(ctx).Error(err, "Failed to send some metrics by OTLP, continuing with the next round", "endpoint", e.cfg.OTLPEndpoint)
			}
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}

// otlp is the exporter of OpenTelemetry.
type otlp interface {
	Export(ctx context.Context, resource *metricdata.ResourceMetrics) error
}

// sendRound sends one request for the node and one for each container. After a failure it stops, because the other requests would wait as
// long. After a partial rejection it continues, because the collector accepted the rest.
func sendRound(ctx context.Context, to otlp, resources []*metricdata.ResourceMetrics, scope instrumentation.Scope) error {
	ctx, cancel := context.WithTimeout(ctx, otlpTimeout)
	defer cancel()
	var rejected error
	for _, r := range resources {
		r.ScopeMetrics[0].Scope = scope
		err := to.Export(ctx, r)
		if err == nil {
			continue
		}
		if err = shorten(err); !partial(err) {
			return err
		}
		rejected = cmp.Or(rejected, err)
	}
	return rejected
}

// partial reports whether a collector accepted a part of a request. The library defines no type for this error.
func partial(err error) bool { return strings.Contains(err.Error(), "OTLP partial success") }

// shorten bounds the text of an error, which may contain an answer of any length.
func shorten(err error) error {
	if text := err.Error(); len(text) > otlpMessage {
		return errors.New(strings.ToValidUTF8(text[:otlpMessage], ""))
	}
	return err
}
