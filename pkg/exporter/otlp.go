package exporter

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/metrics"
)

// otlpTimeout is how long sending one round may take.
const otlpTimeout = 10 * time.Second

// send sends each round by OTLP until the context ends. A collector that does not answer is no failure of the exporter: the next round is
// sent to it again.
func (e *Exporter) send(ctx context.Context) error {
	if e.cfg.OTLPEndpoint == "" {
		<-ctx.Done()
		return nil
	}
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(e.cfg.OTLPEndpoint),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{Enabled: false}), otlpmetrichttp.WithTimeout(otlpTimeout))
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	var sent *round
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
		err := sendRound(ctx, exporter, now.join().OTel(), instrumentation.Scope{Name: "prism-exporter", Version: e.adapters.Version})
		if err != nil && ctx.Err() == nil {
			e.otlpErrors.Add(1)
			if err.Error() != said {
				klog.FromContext(ctx).Error(err, "Metrics were not sent by OTLP, the next ones will be", "endpoint", e.cfg.OTLPEndpoint)
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

// sendRound sends one request for the node and for each container. The first failure ends it: the others would wait as long.
func sendRound(ctx context.Context, to otlp, resources []metrics.OTelResource, scope instrumentation.Scope) error {
	ctx, cancel := context.WithTimeout(ctx, otlpTimeout)
	defer cancel()
	now := time.Now()
	for i := range resources {
		err := to.Export(ctx, &metricdata.ResourceMetrics{
			Resource:     resource.NewSchemaless(attributes(resources[i].Attributes)...),
			ScopeMetrics: []metricdata.ScopeMetrics{{Scope: scope, Metrics: otelMetrics(resources[i].Metrics, now)}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func otelMetrics(all []metrics.OTelMetric, now time.Time) []metricdata.Metrics {
	out := make([]metricdata.Metrics, 0, len(all))
	for _, m := range all {
		points := make([]metricdata.DataPoint[float64], 0, len(m.Points))
		for _, p := range m.Points {
			points = append(points, metricdata.DataPoint[float64]{Attributes: attribute.NewSet(attributes(p.Attributes)...), Time: now, Value: p.Value})
		}
		var data metricdata.Aggregation = metricdata.Gauge[float64]{DataPoints: points}
		if m.Kind != metrics.OTelGauge {
			data = metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: m.Kind == metrics.OTelCounter}
		}
		out = append(out, metricdata.Metrics{Name: m.Name, Description: m.Description, Unit: m.Unit, Data: data})
	}
	return out
}

func attributes(all []metrics.OTelAttribute) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(all))
	for _, a := range all {
		out = append(out, attribute.String(a.Key, a.Value))
	}
	return out
}
