// Prism-controller manages DeviceClasses with extended resource names, so that pods can request devices as extended resources, and
// labels of Nodes, and serves the admission webhook for opaque configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	selectors "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/controller/admission"
	"github.com/prism-gpu/prism/pkg/controller/classes"
	"github.com/prism-gpu/prism/pkg/controller/labels"
	"github.com/prism-gpu/prism/pkg/controller/reports"
	"github.com/prism-gpu/prism/pkg/logging"
)

// version is set by the linker.
var version = "dev"

const name = "prism-controller"

func main() {
	cfg, err := config.LoadController(os.Args[1:], os.Getenv)
	if errors.Is(err, config.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	if err := run(cfg); err != nil {
		klog.Background().Error(err, "Exiting after a failure")
		klog.Flush()
		os.Exit(1)
	}
}

// run runs the controllers until a signal or a failure; losing the leader election is a failure.
func run(cfg *config.Controller) error {
	logger, err := logging.Start(cfg.LogFormat, cfg.LogVerbosity, version, cfg)
	if err != nil {
		return err
	}
	defer klog.Flush()
	ctrllog.SetLogger(logger)
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), logger), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	m, err := wire(ctx, cfg)
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

// wire builds the manager with all controllers; m.Start starts them.
func wire(ctx context.Context, cfg *config.Controller) (manager.Manager, error) {
	connection, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	scheme, err := classes.Scheme()
	if err != nil {
		return nil, err
	}
	namespace, configMap, _ := strings.Cut(cfg.ConfigMap, "/")
	options := classes.Options{
		DriverName: cfg.DriverName, ConfigMap: types.NamespacedName{Namespace: namespace, Name: configMap}, OwnerRole: cfg.OwnerRole,
		GPUResource: classes.GPUResource(cfg.GPUExtendedResource), Lease: types.NamespacedName{Namespace: cfg.Namespace, Name: cfg.Lease},
	}
	selector, err := selectors.Parse(cfg.Reports.PluginSelector)
	if err != nil {
		return nil, err
	}
	served := newAdmissionServer(cfg.AdmissionEndpoint, cfg.AdmissionCertificate)
	m, err := manager.New(connection, manager.Options{
		WebhookServer: served, Scheme: scheme, Cache: cached(cfg, options, selector), Logger: klog.Background(),
		LeaderElection: true, LeaderElectionNamespace: cfg.Namespace, LeaderElectionID: cfg.Lease,
		// The process exits after Start returns, so another replica can lead at once.
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // servePages does
	})
	if err != nil {
		return nil, fmt.Errorf("building the controller: %w", err)
	}
	ready := healthz.Ping
	if serves(cfg) {
		ready = served.StartedChecker()
	}
	if err := servePages(ctx, m, cfg.MetricsEndpoint, cfg.ProbeEndpoint, ready); err != nil {
		return nil, err
	}
	if err := serve(ctx, m, cfg, selector); err != nil {
		return nil, err
	}
	if cfg.OwnerRole != "" {
		if err := m.Add(classes.LeaseOwner{Role: cfg.OwnerRole, Lease: options.Lease, Client: m.GetClient(), Direct: m.GetAPIReader()}); err != nil {
			return nil, fmt.Errorf("building the controller: %w", err)
		}
	}
	if err := labelNodes(ctx, m, cfg); err != nil {
		return nil, err
	}
	if !cfg.DeviceClasses {
		return m, nil
	}
	reconciler := &classes.Reconciler{
		Options: options, Client: m.GetClient(), Direct: m.GetAPIReader(), Events: m.GetEventRecorder(name),
		Metrics: classes.NewMetrics(metrics.Registry, version),
	}
	return m, reconciler.Watch(m)
}

// cached restricts the cache to the objects that the controllers of this process read.
func cached(cfg *config.Controller, options classes.Options, selector selectors.Selector) cache.Options {
	cached := classes.Cache(options)
	if cfg.Reports.Certificate != "" {
		cached.ByObject[&corev1.Pod{}] = reports.PodCache(cfg.Namespace, selector)
		cached.ByObject[&corev1.Namespace{}] = reports.NamespaceCache()
		cached.ByObject[&coordinationv1.Lease{}] = reports.AnnouncementCache(cfg.Namespace, cfg.DriverName)
	}
	if cfg.NodeLabels.Enabled {
		labels.Cache(cfg.DriverName, cached)
	}
	return cached
}

// labelNodes makes the leader set labels of Nodes, or, while labels are switched off, remove the labels that it set before.
func labelNodes(ctx context.Context, m manager.Manager, cfg *config.Controller) error {
	if cfg.NodeLabels.Enabled {
		reconciler := &labels.Reconciler{
			Options: labels.Options{DriverName: cfg.DriverName, Present: cfg.NodeLabels.Present, DevicePlugin: cfg.NodeLabels.DevicePlugin},
			Client:  m.GetClient(), Metrics: labels.NewMetrics(metrics.Registry),
		}
		return reconciler.Watch(ctx, m)
	}
	if cfg.OwnerRole == "" {
		return nil
	}
	removal := labels.Removal{DriverName: cfg.DriverName, Binding: labels.BindingName(cfg.OwnerRole), Client: m.GetClient(), Direct: m.GetAPIReader()}
	if err := m.Add(removal); err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

// serves reports whether this process answers requests of the API server.
func serves(cfg *config.Controller) bool {
	return cfg.AdmissionCertificate != "" && cfg.AdmissionWebhook || cfg.Reports.Certificate != ""
}

// serve makes every replica answer the API server, for admission of configurations and for reports.
func serve(ctx context.Context, m manager.Manager, cfg *config.Controller, selector selectors.Selector) error {
	if cfg.AdmissionCertificate != "" && cfg.AdmissionWebhook {
		if err := admission.Serve(ctx, m, cfg.DriverName, cfg.PolicyMap()); err != nil {
			return err
		}
	}
	if cfg.Reports.Certificate == "" {
		return nil
	}
	return reports.Serve(ctx, m, reports.Options{
		Namespace: cfg.Namespace, DriverName: cfg.DriverName, Selector: selector, Port: cfg.Reports.PluginPort, Certificate: cfg.Reports.Certificate,
	})
}

func connect(cfg *config.Controller) (*rest.Config, error) {
	connection, err := rest.InClusterConfig()
	if cfg.Kubeconfig != "" {
		connection, err = clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	connection.UserAgent = name + "/" + version
	connection.QPS, connection.Burst = float32(cfg.KubeAPI.QPS), cfg.KubeAPI.Burst
	return connection, nil
}
