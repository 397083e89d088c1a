package diagnostics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/prism-gpu/prism/pkg/listen"
)

// HTTP serves metrics and probes.
type HTTP struct {
	// Endpoint is "<address>:<port>"; empty serves nothing.
	Endpoint string
	Metrics  *Metrics
	// Ready returns why the process cannot serve the kubelet yet, nil if it can.
	Ready func() error
	// Note returns a text for /readyz after "ok": a degradation of a process that is ready.
	Note func() string
	// Pprof adds /debug/pprof.
	Pprof bool
}

// Run serves until the context ends. A port that is in use is an error.
func (h HTTP) Run(ctx context.Context) error {
	if h.Endpoint == "" {
		<-ctx.Done()
		return nil
	}
	listener, err := listen.TCP(ctx, h.Endpoint, listen.Pages)
	if err != nil {
		return fmt.Errorf("serving metrics and probes at %s: %w; choose another with --http-endpoint", h.Endpoint, err)
	}
	server := listen.PageServer(h.handler())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics and probes at %s: %w", h.Endpoint, err)
	}
	return nil
}

func (h HTTP) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(h.Metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer := "ok"
		if note := h.Note(); note != "" {
			answer += ", " + note
		}
		_, _ = fmt.Fprintln(w, answer)
	})
	if h.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
