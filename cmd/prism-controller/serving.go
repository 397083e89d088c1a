package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/prism-gpu/prism/pkg/listen"
)

// shutdownTimeout limits requests after a signal: it is less than the termination grace period.
const shutdownTimeout = 10 * time.Second

// admissionServer is the webhook server of controller-runtime on a port with a limit of clients. The original server accepts any number of
// connections.
type admissionServer struct {
	webhook.DefaultServer
	address string
	// at is the address of the listener, or nil before it listens.
	at atomic.Pointer[net.TCPAddr]
}

// newAdmissionServer serves at "<host>:<port>", with tls.crt and tls.key of a directory, which may change.
func newAdmissionServer(address, certificate string) *admissionServer {
	return &admissionServer{
		DefaultServer: webhook.DefaultServer{Options: webhook.Options{CertDir: certificate, WebhookMux: http.NewServeMux()}}, address: address,
	}
}

// Start implements webhook.Server: it serves until the context ends.
func (s *admissionServer) Start(ctx context.Context) error {
	certificate, err := certwatcher.New(filepath.Join(s.Options.CertDir, "tls.crt"), filepath.Join(s.Options.CertDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("reading the certificate of the admission endpoint in %s: %w", s.Options.CertDir, err)
	}
	go func() {
		if err := certificate.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Watching the certificate of the admission endpoint failed; a new one is used after a restart")
		}
	}()
	listener, err := listen.TCP(ctx, s.address, listen.Admission)
	if err != nil {
		return fmt.Errorf("serving admission at %s: %w; choose another with --admission-endpoint", s.address, err)
	}
	secure := tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, GetCertificate: certificate.GetCertificate,
		// The API server proves with its certificate that it acts for a user.
		ClientAuth: tls.RequestClientCert,
	})
	s.at.Store(listener.Addr().(*net.TCPAddr)) //nolint:forcetypeassert // of a TCP listener
	timeout := shutdownTimeout
	return (&manager.Server{Name: "admission", Server: listen.AdmissionServer(s.Options.WebhookMux), Listener: secure, ShutdownTimeout: &timeout}).Start(ctx)
}

// StartedChecker implements webhook.Server.
func (s *admissionServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if s.at.Load() == nil {
			return errors.New("the admission endpoint does not accept connections yet")
		}
		return nil
	}
}

// servePages serves metrics and probes, each unless its address is "0". controller-runtime's own servers accept any number of connections.
func servePages(ctx context.Context, m manager.Manager, metricsAt, probesAt string, ready healthz.Checker) error {
	pages, probes := http.NewServeMux(), http.NewServeMux()
	pages.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	probes.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	probes.Handle("/readyz", healthz.CheckHandler{Checker: ready})
	timeout := shutdownTimeout
	for _, s := range []struct {
		name, address string
		handler       http.Handler
	}{{"metrics", metricsAt, pages}, {"probe", probesAt, probes}} {
		if s.address == "0" {
			continue
		}
		listener, err := listen.TCP(ctx, s.address, listen.Pages)
		if err != nil {
			return fmt.Errorf("serving at %s: %w; choose another with --%s-endpoint", s.address, err, s.name)
		}
		served := &manager.Server{Name: s.name, Server: listen.PageServer(s.handler), Listener: listener, ShutdownTimeout: &timeout}
		if err := m.Add(served); err != nil {
			return fmt.Errorf("serving at %s: %w", s.address, err)
		}
	}
	return nil
}
