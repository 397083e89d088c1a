package config

import (
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Profiler configures profiles of the processes of claims.
type Profiler struct {
	// Enabled is set if the profiler runs on the node. Otherwise claims with a ProfilerConfig are refused.
	Enabled bool `json:"enabled"`
	// Map is "<namespace>/<name>" of the ConfigMap with the cluster's policy and defaults for profiles; empty: none.
	Map string `json:"map,omitempty"`
	// Endpoint is the address for controllers that read the node's reports: "<address>:<port>"; empty: reports cannot be downloaded.
	Endpoint string `json:"endpoint,omitempty"`
	// Certificate is a directory with tls.crt, tls.key and ca.crt, the CA of the controllers.
	Certificate string `json:"certificate,omitempty"`
	// Client is the DNS name in the certificates of controllers.
	Client string `json:"client,omitempty"`
	// NodeBytes limits the size of all reports on the node; 0: unlimited.
	NodeBytes resource.QuantityValue `json:"nodeBytes"`
	// StartTimeout limits the time that a process waits for the profiler to start.
	StartTimeout time.Duration `json:"startTimeout"`
	// ReportTimeout limits the time to write a report after recording has ended.
	ReportTimeout time.Duration `json:"reportTimeout"`
	// Collector is set if prism-collector runs on the node. Otherwise claims for the performance counters of whole GPUs are refused.
	Collector bool `json:"collector"`
	// CollectorVersion is the version of Nsight Systems that prism-collector records with.
	CollectorVersion string `json:"collectorVersion,omitempty"`
}

// defaultProfiler is the profiler in a pod of the chart.
// The DNS names in certificates of the programs that transfer profile reports.
const (
	// ReportsServerName is in the certificates of plugins, which serve the reports of their nodes.
	ReportsServerName = "prism-node"
	// ReportsClientName is in the certificates of controllers; Profiler.Client can change it.
	ReportsClientName = "prism-controller"
)

func defaultProfiler() Profiler {
	return Profiler{
		NodeBytes: resource.QuantityValue{Quantity: resource.MustParse("32Gi")}, StartTimeout: 10 * time.Second, ReportTimeout: time.Minute,
		Client: ReportsClientName,
	}
}

// flags binds every field to a flag.
func (p *Profiler) flags(f *pflag.FlagSet) {
	f.BoolVar(&p.Enabled, "profiler", p.Enabled, "whether the profiler runs on the node, so that processes of claims may be profiled")
	f.StringVar(&p.Map, "profiler-config-map", p.Map, "<namespace>/<name> of the ConfigMap with policy and defaults for profiles; empty: none")
	f.StringVar(&p.Endpoint, "reports-endpoint", p.Endpoint, "address at which controllers read the node's reports; empty: none")
	f.StringVar(&p.Certificate, "reports-certificate", p.Certificate, "directory with tls.crt, tls.key and ca.crt, the CA of the "+
		"controllers, for --reports-endpoint")
	f.StringVar(&p.Client, "reports-client-name", p.Client, "DNS name in the certificates of controllers; other certificates of their "+
		"CA are refused")
	f.Var(&p.NodeBytes, "reports-max-bytes", "limit for the size of all reports on the node, as a quantity; 0: unlimited")
	f.DurationVar(&p.StartTimeout, "profiler-start-timeout", p.StartTimeout, "how long a process waits for the profiler "+
		"to start, in whole seconds; then it runs without a profile, or fails if failurePolicy is FailClosed")
	f.DurationVar(&p.ReportTimeout, "profiler-report-timeout", p.ReportTimeout, "time limit of the profiler to write a report "+
		"after recording has ended, in whole seconds; then the report is lost, and the container of a process that exited exits")
	f.BoolVar(&p.Collector, "collector", p.Collector, "whether prism-collector runs on the node, so that claims may record the performance counters "+
		"of whole GPUs; requires --profiler")
	f.StringVar(&p.CollectorVersion, "collector-version", p.CollectorVersion, "version of Nsight Systems that prism-collector records with")
}

func (p Profiler) validate(bad invalid) {
	if t := p.StartTimeout; t < time.Second || t > time.Hour || t%time.Second != 0 {
		bad("profiler-start-timeout", "must be whole seconds from 1s to 1h, got %v", t)
	}
	if t := p.ReportTimeout; t < time.Second || t > time.Hour || t%time.Second != 0 {
		bad("profiler-report-timeout", "must be whole seconds from 1s to 1h, got %v", t)
	}
	p.validateCollector(bad)
	if !validMap(p.Map) {
		bad("profiler-config-map", "must be <namespace>/<name>, got %q", p.Map)
	}
	if _, _, err := net.SplitHostPort(p.Endpoint); p.Endpoint != "" && err != nil {
		bad("reports-endpoint", "must be <address>:<port>, got %q", p.Endpoint)
	}
	if p.Endpoint != "" && !filepath.IsAbs(p.Certificate) {
		bad("reports-certificate", "required with --reports-endpoint: an absolute path, got %q", p.Certificate)
	}
	if len(validation.IsDNS1123Subdomain(p.Client)) > 0 || p.Client == ReportsServerName {
		bad("reports-client-name", "must be a DNS name other than %s, which the certificates of plugins use, got %q", ReportsServerName, p.Client)
	}
}

func (p Profiler) validateCollector(bad invalid) {
	if p.Collector && !p.Enabled {
		bad("collector", "requires --profiler, which imports and serves the reports")
	}
	if p.Collector && p.CollectorVersion == "" {
		bad("collector-version", "required with --collector: a version such as 2025.5.1")
	}
}

// ProfilePolicy locates the cluster's policy for profiles, for the controller.
type ProfilePolicy struct {
	// ProfilerMap is "<namespace>/<name>" of the ConfigMap with the policy for profiles; empty: only nodes check claims against the policy.
	ProfilerMap string `json:"profilerConfigMap,omitempty"`
}

func (p *ProfilePolicy) flags(f *pflag.FlagSet) {
	f.StringVar(&p.ProfilerMap, "profiler-config-map", p.ProfilerMap, "<namespace>/<name> of the ConfigMap with the policy for profiles; empty: none")
}

func (p ProfilePolicy) validate(bad invalid) {
	if !validMap(p.ProfilerMap) {
		bad("profiler-config-map", "must be <namespace>/<name>, got %q", p.ProfilerMap)
	}
}

// PolicyMap is the name of the ConfigMap with the policy for profiles; empty: none.
func (p ProfilePolicy) PolicyMap() types.NamespacedName {
	namespace, name, _ := strings.Cut(p.ProfilerMap, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
