package exporter

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

// answers is a collector that answers each request with the next handler, and then with success. It reports the received resources: "node"
// for the node, otherwise the pod.
func answers(t *testing.T, list ...http.HandlerFunc) (handler http.Handler, got chan string) {
	t.Helper()
	got = make(chan string, 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var request collector.ExportMetricsServiceRequest
		assert.NoError(t, proto.Unmarshal(body, &request))
		of := "node"
		for _, a := range request.GetResourceMetrics()[0].GetResource().GetAttributes() {
			if a.GetKey() == "k8s.pod.name" {
				of = a.GetValue().GetStringValue()
			}
		}
		if len(list) > 0 {
			list[0](w, r)
			list = list[1:]
		}
		got <- of
	}), got
}

// sending sends each round to a collector: tick sends the next one.
func sending(t *testing.T, url string) (f *fixture, tick func()) {
	t.Helper()
	f = newFixture(t, &config.Exporter{
		OTLPEndpoint: url + "/v1/metrics", Sampling: config.Sampling{Interval: config.Duration{Duration: time.Second}},
	})
	board := &metrics.GPU{Identity: metrics.Identity{UUID: "GPU-1", Name: "NVIDIA H100"}, Up: true, At: time.Unix(1, 0), Interval: time.Second}
	board.Values.Set(metrics.FieldUtilization, 0.5)
	f.allocations.list = &metrics.Allocations{Generation: 1, List: []metrics.Allocation{{
		Namespace: "team", Claim: "claim", ClaimUID: "uid", Request: "gpu", Pool: "node-a", Device: "gpu-0", GPU: "GPU-1",
		Containers: []metrics.Container{{Namespace: "team", Pod: "trainer", PodUID: "pod-uid", Name: "main", ID: "id"}},
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.send(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	generation := uint64(1)
	return f, func() {
		generation++
		f.sampler.snapshot.Store(&metrics.Snapshot{Generation: generation, GPUs: []*metrics.GPU{board}})
		f.tick(t)
	}
}

// received waits for resources in this order.
func received(t *testing.T, got chan string, want ...string) {
	t.Helper()
	for _, of := range want {
		select {
		case one := <-got:
			require.Equal(t, of, one)
		case <-time.After(waitLimit):
			require.Fail(t, "not sent", of)
		}
	}
}

// TestSend_PartialSuccess_OthersSent: rejected values of one resource are counted, and the other resources are sent.
func TestSend_PartialSuccess_OthersSent(t *testing.T) {
	t.Parallel()
	rejects := func(w http.ResponseWriter, _ *http.Request) {
		body, err := proto.Marshal(&collector.ExportMetricsServiceResponse{
			PartialSuccess: &collector.ExportMetricsPartialSuccess{RejectedDataPoints: 3, ErrorMessage: "too old"},
		})
		assert.NoError(t, err)
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, err = w.Write(body)
		assert.NoError(t, err)
	}
	handler, got := answers(t, rejects)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f, tick := sending(t, server.URL)
	tick()
	received(t, got, "node", "trainer")
	require.Eventually(t, func() bool { return f.otlpErrors.Load() == 1 }, waitLimit, pause)
	tick()
	received(t, got, "node", "trainer")
}

func busy(after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
}

// TestSend_RetryAfterWithinRound_SentAgain: no value is lost, and no failure counted.
func TestSend_RetryAfterWithinRound_SentAgain(t *testing.T) {
	t.Parallel()
	handler, got := answers(t, busy("1"))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f, tick := sending(t, server.URL)
	tick()
	received(t, got, "node", "node", "trainer")
	assert.Zero(t, f.otlpErrors.Load())
}

// TestSend_RetryAfterTooLong_NextRoundSent: the rest of the round is dropped without another request.
func TestSend_RetryAfterTooLong_NextRoundSent(t *testing.T) {
	t.Parallel()
	handler, got := answers(t, busy("3600"))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f, tick := sending(t, server.URL)
	tick()
	require.Eventually(t, func() bool { return f.otlpErrors.Load() == 1 }, waitLimit, pause)
	tick()
	received(t, got, "node", "node", "trainer")
	assert.Empty(t, got)
}

// TestSend_ConnectionRefused_NextRoundSent: the exporter does not fail if the collector is not running yet.
func TestSend_ConnectionRefused_NextRoundSent(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := listener.Addr().String()
	require.NoError(t, listener.Close())
	f, tick := sending(t, "http://"+at)
	tick()
	require.Eventually(t, func() bool { return f.otlpErrors.Load() == 1 }, waitLimit, pause)
	handler, got := answers(t)
	server := httptest.NewUnstartedServer(handler)
	require.NoError(t, server.Listener.Close())
	server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	require.NoError(t, err)
	server.Start()
	t.Cleanup(server.Close)
	tick()
	received(t, got, "node", "trainer")
	assert.EqualValues(t, 1, f.otlpErrors.Load())
}

func TestShort_LongAnswer_Bounded(t *testing.T) {
	t.Parallel()
	assert.Len(t, shorten(errors.New(strings.Repeat("x", 5*otlpMessage))).Error(), otlpMessage)
	few := errors.New("few")
	assert.Same(t, few, shorten(few))
}
