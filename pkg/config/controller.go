package config

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Controller is the configuration of prism-controller. Its JSON form is printed at start.
type Controller struct {
	// DriverName is the DRA driver whose devices get extended resource names.
	DriverName string `json:"driverName"`
	// Kubeconfig is a file; empty: the pod's service account.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// ConfigMap is "<namespace>/<name>" of the ConfigMap with node configurations; empty: none.
	ConfigMap string `json:"nodeConfigMap,omitempty"`
	// ProfilePolicy locates the policy for profiles.
	ProfilePolicy
	// DeviceClasses is set if the process manages DeviceClasses and their extended resource names; otherwise it only serves the API of
	// reports.
	DeviceClasses bool `json:"deviceClasses"`
	// GPUExtendedResource is Auto, Always or Never: whether whole GPUs get the name nvidia.com/gpu.
	GPUExtendedResource string `json:"gpuExtendedResource"`
	// NodeLabels configures labels of Nodes.
	NodeLabels NodeLabels `json:"nodeLabels"`
	// Namespace and Lease are the Lease of the leader election.
	Namespace string `json:"namespace"`
	Lease     string `json:"lease"`
	// OwnerRole is the ClusterRole that owns the created objects; empty: they are created without an owner.
	OwnerRole string `json:"ownerRole,omitempty"`
	// MetricsEndpoint and ProbeEndpoint are "<address>:<port>"; "0" disables them.
	MetricsEndpoint string `json:"metricsEndpoint"`
	ProbeEndpoint   string `json:"probeEndpoint"`
	// AdmissionEndpoint is the "<address>:<port>" of the admission webhook, and of the API of reports.
	AdmissionEndpoint string `json:"admissionEndpoint"`
	// AdmissionCertificate is a directory with tls.crt and tls.key for it; empty: the endpoint is disabled.
	AdmissionCertificate string `json:"admissionCertificate,omitempty"`
	// AdmissionWebhook enables the admission webhook at the endpoint.
	AdmissionWebhook bool `json:"admissionWebhook"`
	// Reports configures the API of reports.
	Reports Reports `json:"reports"`
	// KubeAPI limits requests to the API server, per second and in a burst. The same limit applies separately to the API of reports.
	KubeAPI Rate `json:"kubeAPI"`
	// Logging configures the logs.
	Logging
}

// NodeLabels configures the labels of Nodes that follow from their ResourceSlices.
type NodeLabels struct {
	// Enabled sets the labels. Otherwise the labels that were set before are removed.
	Enabled bool `json:"enabled"`
	// Present adds nvidia.com/gpu.present, DevicePlugin the labels about MIG and sharing of NVIDIA's device plugin.
	Present      bool `json:"present"`
	DevicePlugin bool `json:"devicePlugin"`
}

// Reports locates the nodes' reports of profiled processes.
type Reports struct {
	// Certificate is a directory with tls.crt, tls.key and ca.crt, the CA of the plugins; empty: no API of reports.
	Certificate string `json:"certificate,omitempty"`
	// PluginSelector selects the pods of the kubelet plugin in the namespace of the controller, PluginPort is the port of their reports.
	PluginSelector string `json:"pluginSelector,omitempty"`
	PluginPort     int    `json:"pluginPort"`
}

// gpuExtendedResources are the values of GPUExtendedResource.
var gpuExtendedResources = []string{"Auto", "Always", "Never"}

// LoadController reads the configuration from the arguments after the program's name and the environment. The error joins all validation
// errors.
func LoadController(args []string, getenv func(string) string) (*Controller, error) {
	c := controllerDefaults()
	return load(c, c.flags(), args, getenv)
}

// controllerDefaults are the values of a process without flags.
func controllerDefaults() *Controller {
	return &Controller{
		DriverName: "gpu.prism.dev", DeviceClasses: true, GPUExtendedResource: "Auto", Lease: "prism-controller", MetricsEndpoint: ":8080", ProbeEndpoint: ":8081",
		AdmissionEndpoint: ":9443", AdmissionWebhook: true, Reports: Reports{PluginPort: 8444}, KubeAPI: Rate{QPS: 50, Burst: 100}, Logging: defaultLogging,
	}
}

// flags binds every field to a flag; the value of the field is the default.
func (c *Controller) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-controller", pflag.ContinueOnError)
	f.StringVar(&c.DriverName, "driver-name", c.DriverName, "name of the DRA driver whose devices get extended resource names")
	f.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig file; empty: service account of the pod")
	f.StringVar(&c.ConfigMap, "node-config-map", c.ConfigMap, "<namespace>/<name> of the ConfigMap of node configurations; empty: none")
	c.ProfilePolicy.flags(f)
	f.BoolVar(&c.DeviceClasses, "device-classes", c.DeviceClasses, "manage DeviceClasses and their extended resource names")
	f.StringVar(&c.GPUExtendedResource, "gpu-extended-resource", c.GPUExtendedResource, "whether whole GPUs can be requested as nvidia.com/gpu: Auto ("+
		"unless a device plugin adds that capacity to a node), Always or Never")
	f.BoolVar(&c.NodeLabels.Enabled, "node-labels", c.NodeLabels.Enabled, "set labels of Nodes from their ResourceSlices; false: remove them")
	f.BoolVar(&c.NodeLabels.Present, "node-labels-present", c.NodeLabels.Present, "also set nvidia.com/gpu.present, on which the charts of NVIDIA start programs")
	f.BoolVar(&c.NodeLabels.DevicePlugin, "node-labels-device-plugin", c.NodeLabels.DevicePlugin, "also set the labels about MIG and sharing of NVIDIA's "+
		"device plugin")
	f.StringVar(&c.Namespace, "namespace", c.Namespace, "namespace of the Lease")
	f.StringVar(&c.Lease, "lease", c.Lease, "name of the Lease that the leader holds")
	f.StringVar(&c.OwnerRole, "owner-role", c.OwnerRole, "ClusterRole that owns the created objects, which are deleted with it; empty: they are kept")
	f.StringVar(&c.MetricsEndpoint, "metrics-endpoint", c.MetricsEndpoint, "address of /metrics; 0: none")
	f.StringVar(&c.ProbeEndpoint, "probe-endpoint", c.ProbeEndpoint, "address of /healthz and /readyz; 0: none")
	f.StringVar(&c.AdmissionEndpoint, "admission-endpoint", c.AdmissionEndpoint, "address of the admission webhook and of the API of reports")
	f.StringVar(&c.AdmissionCertificate, "admission-certificate", c.AdmissionCertificate, "directory with tls.crt and tls.key for the admission endpoint; empty: "+
		"the endpoint is disabled")
	f.BoolVar(&c.AdmissionWebhook, "admission-webhook", c.AdmissionWebhook, "answer admission requests at the admission endpoint")
	f.StringVar(&c.Reports.Certificate, "reports-certificate", c.Reports.Certificate, "directory with tls.crt, tls.key and ca.crt, the CA of the plugins; "+
		"empty: no API of reports")
	f.StringVar(&c.Reports.PluginSelector, "plugin-selector", c.Reports.PluginSelector, "label selector of the pods of the kubelet plugin, for the API of reports")
	f.IntVar(&c.Reports.PluginPort, "plugin-port", c.Reports.PluginPort, "port at which plugins serve their reports")
	f.Float64Var(&c.KubeAPI.QPS, "kube-api-qps", c.KubeAPI.QPS, "requests per second to the API server; -1: no limit")
	f.IntVar(&c.KubeAPI.Burst, "kube-api-burst", c.KubeAPI.Burst, "burst of requests to the API server")
	c.Logging.flags(f)
	return f
}

// Admission splits the address of the admission endpoint.
func (c *Controller) Admission() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(c.AdmissionEndpoint)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return host, int(number), err
}

func (*Controller) derive() {}

// validate reports every invalid value, with the flag that sets it.
func (c *Controller) validate(bad invalid) {
	validateDriverName(c.DriverName, bad)
	if !slices.Contains(gpuExtendedResources, c.GPUExtendedResource) {
		bad("gpu-extended-resource", "unsupported value %q; supported values: %s", c.GPUExtendedResource, strings.Join(gpuExtendedResources, ", "))
	}
	c.KubeAPI.validate(bad)
	NodeConfig{Map: c.ConfigMap}.validate(bad)
	c.ProfilePolicy.validate(bad)
	if c.Namespace == "" {
		bad("namespace", "required: the namespace of the Lease, which is the namespace of the controller")
	}
	if problem := validation.IsDNS1123Subdomain(c.Lease); len(problem) > 0 {
		bad("lease", "must be a DNS subdomain, got %q", c.Lease)
	}
	for flag, endpoint := range map[string]string{"metrics-endpoint": c.MetricsEndpoint, "probe-endpoint": c.ProbeEndpoint} {
		if _, _, err := net.SplitHostPort(endpoint); endpoint != "0" && err != nil {
			bad(flag, "must be <address>:<port> or 0, got %q", endpoint)
		}
	}
	if _, _, err := c.Admission(); err != nil {
		bad("admission-endpoint", "must be <address>:<port>, got %q", c.AdmissionEndpoint)
	}
	c.Reports.validate(c.AdmissionCertificate, bad)
	c.Logging.validate(bad)
}

func (r Reports) validate(serving string, bad invalid) {
	if r.Certificate == "" {
		return
	}
	if serving == "" {
		bad("reports-certificate", "requires --admission-certificate, which the API of reports uses")
	}
	if selector, err := labels.Parse(r.PluginSelector); err != nil || selector.Empty() {
		bad("plugin-selector", "must be a label selector, got %q", r.PluginSelector)
	}
	if r.PluginPort < 1 || r.PluginPort > 65535 {
		bad("plugin-port", "must be between 1 and 65535, got %d", r.PluginPort)
	}
}
