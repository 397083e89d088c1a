package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/munnerz/goautoneg"
	"github.com/prometheus/exporter-toolkit/web"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/listen"
)

// server serves pages and probes.
type server struct {
	serving config.Serving
	// webConfig is the path of a configuration file of exporter-toolkit; empty for none.
	webConfig string
	// probes is a separate address of /healthz and /readyz, without TLS and users, which clients of the pages cannot block; empty for none.
	probes string
	pages  *pages
	// ready returns why nothing can be measured, nil if everything can be; notes returns further problems.
	ready func() error
	notes func() []string
	// listening is called with each address; nil is allowed.
	listening func(net.Addr)
}

// validateWebConfig returns an error if exporter-toolkit cannot use the file.
func validateWebConfig(file string) error {
	if file == "" {
		return nil
	}
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("--web-config-file: %s: %w", file, err)
	}
	return nil
}

// run serves until the context ends. It returns an error if a port is in use.
func (s *server) run(ctx context.Context) error {
	failed := make(chan error, 2)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { failed <- s.serve(ctx, s.serving.HTTPEndpoint, "http-endpoint", s.handler(), s.webConfig) }()
	running := 1
	if s.probes != "" {
		running++
		go func() { failed <- s.serve(ctx, s.probes, "probe-endpoint", s.probeHandler(http.NewServeMux()), "") }()
	}
	var all error
	for range running {
		err := <-failed
		stop()
		all = errors.Join(all, err)
	}
	return all
}

// serve serves at one address until the context ends.
func (s *server) serve(ctx context.Context, address, flag string, handler http.Handler, webConfig string) error {
	listener, err := listen.TCP(ctx, address, listen.Pages)
	if err != nil {
		return fmt.Errorf("serving metrics and probes at %s: %w; choose another address with --%s", address, err, flag)
	}
	logger := slog.New(logr.ToSlogHandler(klog.FromContext(ctx).V(4)))
	server := listen.PageServer(handler)
	server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if s.listening != nil {
		s.listening(listener.Addr())
	}
	if webConfig == "" {
		err = server.Serve(listener)
	} else {
		err = web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &webConfig}, logger)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics and probes at %s: %w", address, err)
	}
	return nil
}

func (s *server) handler() http.Handler {
	mux := s.probeHandler(http.NewServeMux())
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { s.page(w, r, negotiated(r.Header.Get("Accept"))) })
	mux.HandleFunc("GET /metrics/dcgm", func(w http.ResponseWriter, r *http.Request) { s.page(w, r, dcgmText) })
	if s.serving.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func (s *server) probeHandler(mux *http.ServeMux) *http.ServeMux {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, strings.Join(append([]string{"ok"}, s.notes()...), "\n"))
	})
	return mux
}

// page answers a scrape with the kept page.
func (s *server) page(w http.ResponseWriter, r *http.Request, page format) {
	zip := acceptsGzip(r.Header.Get("Accept-Encoding"))
	content := s.pages.get(page, zip)
	header := w.Header()
	header.Set("Content-Type", contentTypes[page])
	header.Set("Vary", "Accept, Accept-Encoding")
	if zip {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}

// negotiated is the format of /metrics that a client prefers: OpenMetrics if the client accepts it, otherwise text.
func negotiated(accept string) format {
	const text, openMetrics = "text/plain", "application/openmetrics-text"
	if goautoneg.Negotiate(accept, []string{text, openMetrics}) == openMetrics {
		return nativeOpenMetrics
	}
	return nativeText
}

// acceptsGzip reports whether a client accepts gzip.
func acceptsGzip(accept string) bool {
	for coding := range strings.SplitSeq(accept, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if name = strings.TrimSpace(name); name != "gzip" && name != "*" {
			continue
		}
		value, found := strings.CutPrefix(strings.TrimSpace(quality), "q=")
		weight, err := strconv.ParseFloat(value, 64)
		return !found || (err == nil && weight > 0)
	}
	return false
}
