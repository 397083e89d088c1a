package exporter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	otlpmetrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// receive is a collector that reports each received resource; it refuses the first request.
func receive(t *testing.T) (url string, got chan *otlpmetrics.ResourceMetrics) {
	t.Helper()
	got = make(chan *otlpmetrics.ResourceMetrics, 100)
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refused {
			refused = true
			http.Error(w, "not now", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var request collector.ExportMetricsServiceRequest
		assert.NoError(t, proto.Unmarshal(body, &request))
		for _, resource := range request.GetResourceMetrics() {
			got <- resource
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/metrics", got
}

// TestSend_Collector_ResourcePerContainer: a failed request is counted, and the next round is sent.
func TestSend_Collector_ResourcePerContainer(t *testing.T) {
	t.Parallel()
	url, got := receive(t)
	f := newFixture(t, &config.Exporter{OTLPEndpoint: url, Sampling: config.Sampling{Interval: config.Duration{Duration: time.Second}}})
	board := &metrics.GPU{Identity: metrics.Identity{UUID: "GPU-1", Name: "NVIDIA H100"}, Up: true, At: time.Unix(100, 0), Began: time.Unix(99, 0), Interval: time.Second}
	board.Values.Set(metrics.FieldUtilization, 0.5)
	board.Values.Set(metrics.FieldMemoryUsed, 1024)
	board.Values.Set(metrics.FieldMemoryTotal, 4096)
	board.Values.Set(metrics.FieldEnergy, 7)
	f.sampler.snapshot.Store(&metrics.Snapshot{Generation: 1, GPUs: []*metrics.GPU{board}})
	f.allocations.list = &metrics.Allocations{Generation: 1, List: []metrics.Allocation{{
		Namespace: "team", Claim: "claim", ClaimUID: "uid", Request: "gpu", Pool: "node-a", Device: "gpu-0", GPU: "GPU-1", Since: time.Unix(50, 0),
		Containers: []metrics.Container{{Namespace: "team", Pod: "trainer", PodUID: "pod-uid", Name: "main", ID: "id"}},
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.send(ctx) }()
	f.tick(t)
	require.Eventually(t, func() bool { return f.otlpErrors.Load() == 1 }, waitLimit, pause)
	f.sampler.snapshot.Store(&metrics.Snapshot{Generation: 2, GPUs: []*metrics.GPU{board}})
	f.tick(t)
	f.tick(t)
	cancel()
	require.NoError(t, <-done)
	close(got)
	seen := map[string]*otlpmetrics.Metric{}
	for resource := range got {
		attributes := map[string]string{}
		for _, a := range resource.GetResource().GetAttributes() {
			attributes[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, m := range resource.GetScopeMetrics()[0].GetMetrics() {
			seen[attributes["k8s.pod.name"]+" "+m.GetName()] = m
		}
		assert.Equal(t, "node-a", attributes["k8s.node.name"])
	}
	require.Contains(t, seen, "trainer hw.gpu.utilization")
	assert.InDelta(t, 0.5, seen["trainer hw.gpu.utilization"].GetGauge().GetDataPoints()[0].GetAsDouble(), 0)
	energy := seen["trainer hw.energy"].GetSum()
	assert.True(t, energy.GetIsMonotonic())
	assert.Equal(t, otlpmetrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, energy.GetAggregationTemporality())
	assert.InDelta(t, 0, energy.GetDataPoints()[0].GetAsDouble(), 0, "what was used before is not the container's")
	usage := seen["trainer hw.gpu.memory.usage"].GetSum()
	assert.False(t, usage.GetIsMonotonic())
	for _, sum := range []*otlpmetrics.Sum{energy, usage} {
		assert.EqualValues(t, time.Unix(50, 0).UnixNano(), sum.GetDataPoints()[0].GetStartTimeUnixNano(), "when the claim was prepared")
	}
	assert.NotZero(t, seen[" hw.status"].GetSum().GetDataPoints()[0].GetStartTimeUnixNano(), "when the exporter began")
	assert.InDelta(t, 1024, usage.GetDataPoints()[0].GetAsDouble(), 0)
	assert.Contains(t, seen, " hw.status", "the node has the rest")
}
