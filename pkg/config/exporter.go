package config

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Exporter is the configuration of prism-exporter. Its JSON form is the format of the file, and is printed at start.
type Exporter struct {
	// DriverName is the name of the DRA driver; it also sets the directories of records and of claims' metrics.
	DriverName string `json:"driverName"`
	// NodeName is the Node of this process; it is the host name of pages and of OTLP resources.
	NodeName string `json:"nodeName,omitempty"`
	// HostRoot is the mount point of the host's root file system.
	HostRoot string `json:"hostRoot"`
	// DriverRoot is the root directory of the NVIDIA driver on the host; empty detects it.
	DriverRoot string `json:"driverRoot,omitempty"`
	// SearchDirs are directories in the driver's root that are searched for its library before the default ones.
	SearchDirs Names `json:"searchDirs,omitempty"`
	// RunDir is the directory that Prism's programs share on a node. Empty: /run/<driver name>.
	RunDir string `json:"runDir,omitempty"`
	// Sources are the sources for the devices of containers.
	Sources ExporterSources `json:"sources"`
	// Sampling sets the measured values and the interval.
	Sampling Sampling `json:"sampling"`
	// Pages configures the pages.
	Pages ExporterPages `json:"pages"`
	// OTLPEndpoint is the URL to which metrics are sent with OTLP over HTTP; empty: metrics are not sent.
	OTLPEndpoint string `json:"otlpEndpoint,omitempty"`
	// Serving configures the HTTP endpoint and the logs.
	Serving Serving `json:"serving"`
	// WebConfigFile sets the TLS certificate and the users of the HTTP endpoint, in the format of Prometheus's exporter toolkit. Empty:
	// neither.
	WebConfigFile string `json:"webConfigFile,omitempty"`
	// ProbeEndpoint serves /healthz and /readyz to the kubelet, without TLS and users and separate from all clients of the HTTP endpoint;
	// empty: only the HTTP endpoint serves them.
	ProbeEndpoint string `json:"probeEndpoint,omitempty"`
}

// ExporterSources are the exporter's sources for the devices of containers.
type ExporterSources struct {
	// KubeletPlugins is the kubelet's directory of plugins, which contains the plugin's records.
	KubeletPlugins string `json:"kubeletPlugins"`
	// KubeletPodResources is the PodResources socket of the kubelet.
	KubeletPodResources string `json:"kubeletPodResources"`
	// CRISocket is the container runtime's socket on the host; empty: detected.
	CRISocket string `json:"criSocket,omitempty"`
}

// Sampling sets the measured values of each GPU, and the interval.
type Sampling struct {
	// Interval is the time between two samples; claims may request a shorter one.
	Interval Duration `json:"interval"`
	// MinInterval is the shortest interval that claims may request.
	MinInterval Duration `json:"minInterval"`
	// Sets are the sets of metrics for every GPU.
	Sets Names `json:"sets"`
}

// ExporterPages configures additions to pages.
type ExporterPages struct {
	// PodUID adds the UID of the pod, as label pod_uid, to prism_gpu_allocation_info and to series with dcgm-exporter's names.
	PodUID bool `json:"podUID,omitempty"`
	// PodLabelKeys are the keys of pod labels that are added to series that name a pod.
	PodLabelKeys Names `json:"podLabelKeys,omitempty"`
	// Counters is a file of dcgm-exporter's counters, or the directory of a mounted ConfigMap with it; empty: its default counters.
	Counters string `json:"counters,omitempty"`
}

// The bounds of Sampling.
const (
	shortestInterval = 100 * time.Millisecond
	longestInterval  = 10 * time.Minute
)

// maxPodLabelKeys limits ExporterPages.PodLabelKeys.
const maxPodLabelKeys = 16

// ExporterFlags lists the flags of prism-exporter by name.
func ExporterFlags() []Flag {
	e := exporterDefaults()
	f := e.flags()
	addConfigFlag(f, "")
	return described(f, e)
}

// LoadExporter reads the configuration from the arguments after the program name, the environment and the file that --config
// or PRISM_CONFIG names. The error joins all validation errors.
func LoadExporter(args []string, getenv func(string) string) (*Exporter, error) {
	return loadWithFile(exporterDefaults(), args, getenv)
}

// exporterDefaults are the values in a pod of the chart.
func exporterDefaults() *Exporter {
	return &Exporter{
		DriverName: "gpu.prism.dev", HostRoot: "/host",
		Sources: ExporterSources{
			KubeletPlugins: "/var/lib/kubelet/plugins", KubeletPodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		},
		Sampling: Sampling{
			Interval: Duration{Duration: 10 * time.Second}, MinInterval: Duration{Duration: time.Second}, Sets: Names{gpu.MetricsBasic},
		},
		Serving: Serving{HTTPEndpoint: ":9400", Logging: defaultLogging}, ProbeEndpoint: ":9401",
	}
}

// flags binds every field to a flag; the value of the field is the default.
func (e *Exporter) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-exporter", pflag.ContinueOnError)
	f.StringVar(&e.DriverName, "driver-name", e.DriverName, "name of the DRA driver; sets the directories of records and of claims' metrics")
	f.StringVar(&e.NodeName, "node-name", e.NodeName, "name of the Node of this process; the host name of pages; empty: the host name of the kernel")
	f.StringVar(&e.HostRoot, "host-root", e.HostRoot, "mount point of the root filesystem of the host")
	f.Var(&e.SearchDirs, "driver-search-dirs", searchDirsUsage)
	f.StringVar(&e.DriverRoot, "driver-root", e.DriverRoot, "root directory of the NVIDIA driver on the host; empty: detected")
	f.StringVar(&e.RunDir, "run-dir", e.RunDir, "directory that Prism's programs share on a node; empty: /run/<driver name>")
	f.StringVar(&e.Sources.KubeletPlugins, "kubelet-plugins-dir", e.Sources.KubeletPlugins, "plugins directory of the kubelet, which contains the plugin's records")
	f.StringVar(&e.Sources.KubeletPodResources, "kubelet-pod-resources-socket", e.Sources.KubeletPodResources, "PodResources socket of the kubelet")
	f.StringVar(&e.Sources.CRISocket, "cri-socket", e.Sources.CRISocket, "socket of the container runtime on the host; empty: detected")
	f.DurationVar(&e.Sampling.Interval.Duration, "interval", e.Sampling.Interval.Duration, "time between two samples of a GPU; claims may request a shorter one")
	f.DurationVar(&e.Sampling.MinInterval.Duration, "min-interval", e.Sampling.MinInterval.Duration, "shortest time between two samples that claims may request")
	f.Var(&e.Sampling.Sets, "sets", "sets of metrics for every GPU: "+strings.Join(gpu.MetricsSets, ", "))
	f.StringVar(&e.Pages.Counters, "counters", e.Pages.Counters, "file of dcgm-exporter's counters for /metrics/dcgm, or directory of a mounted ConfigMap with it; "+
		"empty: its default counters")
	f.BoolVar(&e.Pages.PodUID, "pod-uid", e.Pages.PodUID, "add the UID of the pod, as label pod_uid, to prism_gpu_allocation_info and to /metrics/dcgm")
	f.Var(&e.Pages.PodLabelKeys, "pod-label-keys", "keys of pod labels that are added to series that name a pod")
	f.StringVar(&e.OTLPEndpoint, "otlp-endpoint", e.OTLPEndpoint, "URL to which metrics are sent with OTLP over HTTP; empty: metrics are not sent")
	f.StringVar(&e.Serving.HTTPEndpoint, "http-endpoint", e.Serving.HTTPEndpoint, "address of /metrics, /metrics/dcgm, /healthz and /readyz")
	f.StringVar(&e.WebConfigFile, "web-config-file", e.WebConfigFile, "file with TLS certificate and users of the HTTP endpoint, in the format of Prometheus's exporter toolkit")
	f.StringVar(&e.ProbeEndpoint, "probe-endpoint", e.ProbeEndpoint, "address of /healthz and /readyz for the kubelet, without TLS and users; empty: --http-endpoint alone")
	f.BoolVar(&e.Serving.Pprof, "pprof", e.Serving.Pprof, "serve /debug/pprof at the HTTP endpoint")
	e.Serving.flags(f)
	return f
}

// PluginDir is the directory with the records of this driver's plugin.
func (e *Exporter) PluginDir() string { return filepath.Join(e.Sources.KubeletPlugins, e.DriverName) }

// ClaimsDir contains a directory for each claim whose containers read their metrics.
func (e *Exporter) ClaimsDir() string { return filepath.Join(e.RunDir, "metrics") }

// derive sets values that depend on other values.
func (e *Exporter) derive() {
	if e.RunDir == "" {
		e.RunDir = filepath.Join("/run", e.DriverName)
	}
	clean(&e.HostRoot, &e.RunDir, &e.DriverRoot, &e.Sources.KubeletPlugins, &e.Sources.KubeletPodResources, &e.Sources.CRISocket, &e.Pages.Counters,
		&e.WebConfigFile)
}

// validate reports every invalid value, with the flag that sets it.
func (e *Exporter) validate(bad invalid) {
	validateDriverName(e.DriverName, bad)
	e.validatePaths(bad)
	e.Sampling.validate(bad)
	e.Pages.validate(bad)
	e.validateEndpoints(bad)
	e.Serving.validate(bad)
}

func (e *Exporter) validatePaths(bad invalid) {
	for flag, path := range map[string]string{
		"host-root": e.HostRoot, "run-dir": e.RunDir, "kubelet-plugins-dir": e.Sources.KubeletPlugins,
		"kubelet-pod-resources-socket": e.Sources.KubeletPodResources,
	} {
		if !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path, got %q", path)
		}
	}
	e.SearchDirs.validatePaths("driver-search-dirs", bad)
	for flag, path := range map[string]string{"driver-root": e.DriverRoot, "cri-socket": e.Sources.CRISocket} {
		if path != "" && !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path of the host, got %q", path)
		}
	}
	for flag, path := range map[string]string{"counters": e.Pages.Counters, "web-config-file": e.WebConfigFile} {
		if path != "" && !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path, got %q", path)
		}
	}
}

func (e *Exporter) validateEndpoints(bad invalid) {
	if _, _, err := net.SplitHostPort(e.Serving.HTTPEndpoint); err != nil {
		bad("http-endpoint", "must be <address>:<port>, got %q", e.Serving.HTTPEndpoint)
	}
	if _, _, err := net.SplitHostPort(e.ProbeEndpoint); e.ProbeEndpoint != "" && err != nil {
		bad("probe-endpoint", "must be <address>:<port>, got %q", e.ProbeEndpoint)
	}
	if e.OTLPEndpoint == "" {
		return
	}
	at, err := url.Parse(e.OTLPEndpoint)
	const form = "must be a URL such as http://collector:4318/v1/metrics"
	switch {
	case strings.ContainsAny(e.OTLPEndpoint, "@?"): // refusals are logged too
		bad("otlp-endpoint", form+" without user, password and query, because it is logged; set OTEL_EXPORTER_OTLP_HEADERS instead")
	case err != nil: // what does not parse may have a password anywhere
		bad("otlp-endpoint", form)
	case at.Host == "" || (at.Scheme != "http" && at.Scheme != "https"):
		bad("otlp-endpoint", form+", got %q", e.OTLPEndpoint)
	}
}

func (p *ExporterPages) validate(bad invalid) {
	if n := len(p.PodLabelKeys); n > maxPodLabelKeys {
		bad("pod-label-keys", "must be at most %d keys, got %d", maxPodLabelKeys, n)
	}
	for _, key := range p.PodLabelKeys {
		if len(validation.IsQualifiedName(key)) > 0 {
			bad("pod-label-keys", "must be label keys such as app.kubernetes.io/name, got %q", key)
		}
	}
}

func (s *Sampling) validate(bad invalid) {
	if s.MinInterval.Duration < shortestInterval || s.MinInterval.Duration > longestInterval {
		bad("min-interval", "must be between %s and %s, got %s", shortestInterval, longestInterval, s.MinInterval.Duration)
	}
	if s.Interval.Duration < s.MinInterval.Duration || s.Interval.Duration > longestInterval {
		bad("interval", "must be between --min-interval, %s, and %s, got %s", s.MinInterval.Duration, longestInterval, s.Interval.Duration)
	}
	for _, set := range s.Sets {
		if !slices.Contains(gpu.MetricsSets, set) {
			bad("sets", "unsupported value %q; supported values: %s", set, strings.Join(gpu.MetricsSets, ", "))
		}
	}
}
