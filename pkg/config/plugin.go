package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Plugin is the configuration of prism-kubelet-plugin. Its JSON form is what the file holds and what is printed at start.
type Plugin struct {
	// DriverName is the DRA driver's name; it also sets attribute domain, CDI vendor, socket and state directories.
	DriverName string `json:"driverName"`
	// NodeName is the Node this process runs on.
	NodeName string `json:"nodeName"`
	// PodUID enables rolling updates: two versions may run at once. Empty outside a pod.
	PodUID string `json:"podUID,omitempty"`
	// Kubeconfig is a file; empty means the pod's service account.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// KubeAPI limits what is asked of the API server, per second and in a burst.
	KubeAPI Rate `json:"kubeAPI"`
	// Paths say where things are.
	Paths Paths `json:"paths"`
	// Driver says how the NVIDIA driver is found.
	Driver Driver `json:"driver"`
	// NodeConfig says where it is written what the GPUs are offered as.
	NodeConfig NodeConfig `json:"nodeConfig"`
	// Serving says what the process shows of itself.
	Serving Serving `json:"serving"`
	// DeviceMetadata puts a file with the device's attributes into containers (KEP-5304).
	DeviceMetadata bool `json:"deviceMetadata"`
	// MonitorDevices is MonitorNever or MonitorPerNode.
	MonitorDevices string `json:"monitorDevices"`
}

// The values of MonitorDevices.
const (
	// MonitorNever: claims with admin access look at GPUs by the class of whole GPUs.
	MonitorNever = "Never"
	// MonitorPerNode: a device for such claims alone, which shows all GPUs of the node.
	MonitorPerNode = "PerNode"
)

var monitorDevices = []string{MonitorNever, MonitorPerNode}

// Rate is a token bucket.
type Rate struct {
	QPS   float64 `json:"qps"`
	Burst int     `json:"burst"`
}

// Paths are directories as this process sees them.
type Paths struct {
	// HostRoot is where the host's / is mounted.
	HostRoot string `json:"hostRoot"`
	// CDIRoot is a directory that container runtimes read CDI specs from.
	CDIRoot string `json:"cdiRoot"`
	// KubeletPlugins and KubeletRegistrar are the kubelet's; the same path on the host.
	KubeletPlugins   string `json:"kubeletPlugins"`
	KubeletRegistrar string `json:"kubeletRegistrar"`
	// KubeletPodResources is the socket at which the kubelet tells which claims its containers have.
	KubeletPodResources string `json:"kubeletPodResources"`
	// StateDir is the driver's own directory outside of the kubelet's; the same path on the host. Programs that the container
	// runtime executes are below it, so its mount must not have the option noexec, and users other than root must reach it:
	// in a pod with hostUsers false the runtime executes hooks as such a user.
	StateDir string `json:"stateDir"`
}

// Driver says how the NVIDIA driver is found.
type Driver struct {
	// Root is the host's directory of the driver; empty: the node's configuration names it, else it is detected.
	Root string `json:"root,omitempty"`
	// CDIHook is the host's nvidia-cdi-hook; empty looks for it and installs ours where the host has none; NoCDIHook: CDI specs have no hooks.
	CDIHook string `json:"cdiHook,omitempty"`
	// FailOnInitError ends the process when the driver does not answer at start and no claim is prepared; nil: the node's
	// configuration says.
	FailOnInitError *bool `json:"failOnInitError,omitempty"`
}

// NoCDIHook as CDIHook leaves hooks out of CDI specs.
const NoCDIHook = "none"

// NodeConfig says where it is written what the GPUs are offered as. Without a file and a ConfigMap they are offered whole.
type NodeConfig struct {
	// File holds one node configuration, of either dialect.
	File string `json:"file,omitempty"`
	// Map is "<namespace>/<name>" of a ConfigMap of such documents.
	Map string `json:"map,omitempty"`
	// Label is the key of the Node's label whose value names the one to use; empty: no label does.
	Label string `json:"label,omitempty"`
	// Name is the one for nodes without that label; empty: Fallbacks find one.
	Name string `json:"name,omitempty"`
	// Fallbacks are tried in this order: named, single, empty.
	Fallbacks Names `json:"fallbacks,omitempty"`
}

// Serving says what the process shows of itself.
type Serving struct {
	// HTTPEndpoint serves /metrics, /healthz and /readyz: "<address>:<port>"; empty serves nothing.
	HTTPEndpoint string `json:"httpEndpoint"`
	// Pprof adds /debug/pprof there.
	Pprof bool `json:"pprof"`
	// LogVerbosity: 0 what an operator must see, 2 decisions, 4 details, 6 traces.
	LogVerbosity int `json:"logVerbosity"`
	// LogFormat is "text" or "json".
	LogFormat string `json:"logFormat"`
}

// defaults are what a pod of the chart needs least words for.
func defaults() *Plugin {
	return &Plugin{
		DriverName: "gpu.prism.dev",
		KubeAPI:    Rate{QPS: 200, Burst: 400},
		Paths: Paths{
			HostRoot: "/host", CDIRoot: "/var/run/cdi",
			KubeletPlugins: "/var/lib/kubelet/plugins", KubeletRegistrar: "/var/lib/kubelet/plugins_registry",
			KubeletPodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		},
		NodeConfig: NodeConfig{
			Label: "nvidia.com/device-plugin.config", Fallbacks: Names{"named", "single"},
		},
		Serving:        Serving{HTTPEndpoint: ":8080", LogVerbosity: 2, LogFormat: "text"},
		MonitorDevices: MonitorNever,
	}
}

// flags binds every field to a flag whose default is the field's present value.
func (p *Plugin) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-kubelet-plugin", pflag.ContinueOnError)
	f.StringVar(&p.DriverName, "driver-name", p.DriverName, "name of the DRA driver; sets attribute domain, CDI vendor, socket and state directories")
	f.StringVar(&p.NodeName, "node-name", p.NodeName, "name of the Node this runs on")
	f.StringVar(&p.PodUID, "pod-uid", p.PodUID, "UID of the pod this runs in; lets two versions overlap in a rolling update")
	f.StringVar(&p.Kubeconfig, "kubeconfig", p.Kubeconfig, "kubeconfig file; empty: the pod's service account")
	f.Float64Var(&p.KubeAPI.QPS, "kube-api-qps", p.KubeAPI.QPS, "requests per second to the API server; -1: no limit")
	f.IntVar(&p.KubeAPI.Burst, "kube-api-burst", p.KubeAPI.Burst, "requests to the API server at once")
	f.StringVar(&p.Paths.HostRoot, "host-root", p.Paths.HostRoot, "where the host's / is mounted")
	f.StringVar(&p.Paths.CDIRoot, "cdi-root", p.Paths.CDIRoot, "directory for CDI specs")
	f.StringVar(&p.Paths.KubeletPlugins, "kubelet-plugins-dir", p.Paths.KubeletPlugins, "the kubelet's directory of plugins")
	f.StringVar(&p.Paths.KubeletRegistrar, "kubelet-registrar-dir", p.Paths.KubeletRegistrar, "the kubelet's directory of registration sockets")
	f.StringVar(&p.Paths.KubeletPodResources, "kubelet-pod-resources-socket", p.Paths.KubeletPodResources, "the kubelet's socket that tells which claims containers have")
	f.StringVar(&p.Paths.StateDir, "state-dir", p.Paths.StateDir, "the driver's own directory, for programs that the container runtime executes; "+
		"empty: /var/lib/<driver name>")
	f.StringVar(&p.Driver.Root, "driver-root", p.Driver.Root, "the host's directory of the NVIDIA driver; empty: as the node's configuration says, else detected")
	f.StringVar(&p.Driver.CDIHook, "cdi-hook", p.Driver.CDIHook, "the host's nvidia-cdi-hook; empty: looked for, else ours is installed; none: containers get no hooks")
	f.VarPF(choice{&p.Driver.FailOnInitError}, "fail-on-init-error", "", "exit when the driver does not answer at start and no claim is prepared; "+
		"not given: the node's configuration says").NoOptDefVal = "true"
	f.StringVar(&p.NodeConfig.File, "node-config", p.NodeConfig.File, "file that says what the GPUs are offered as: a NodeConfig, or a file of NVIDIA's device plugin")
	f.StringVar(&p.NodeConfig.Map, "node-config-map", p.NodeConfig.Map, "<namespace>/<name> of a ConfigMap with such documents")
	f.StringVar(&p.NodeConfig.Name, "node-config-name", p.NodeConfig.Name, "which document of the ConfigMap, where the node has no label; empty: what a fallback finds")
	f.StringVar(&p.NodeConfig.Label, "node-config-label", p.NodeConfig.Label, "key of the node's label that names the document; empty: none does")
	f.Var(&p.NodeConfig.Fallbacks, "node-config-fallbacks", "how a document is found that nothing names: named, single, empty, in this order")
	f.StringVar(&p.Serving.HTTPEndpoint, "http-endpoint", p.Serving.HTTPEndpoint, "address of /metrics, /healthz and /readyz; empty: none")
	f.BoolVar(&p.Serving.Pprof, "pprof", p.Serving.Pprof, "serve /debug/pprof at the HTTP endpoint")
	f.IntVarP(&p.Serving.LogVerbosity, "log-verbosity", "v", p.Serving.LogVerbosity, "0 for operators, 2 decisions, 4 details, 6 traces")
	f.StringVar(&p.Serving.LogFormat, "log-format", p.Serving.LogFormat, "text or json")
	f.BoolVar(&p.DeviceMetadata, "device-metadata", p.DeviceMetadata, "put a file with the device's attributes into containers")
	f.StringVar(&p.MonitorDevices, "monitor-devices", p.MonitorDevices, "whether the node has a device that shows all its GPUs to claims with admin "+
		"access: "+strings.Join(monitorDevices, ", "))
	return f
}

// PluginDir is where this driver keeps its sockets, records and locks.
func (p *Plugin) PluginDir() string { return filepath.Join(p.Paths.KubeletPlugins, p.DriverName) }

// defaultStateParent is where the host keeps what outlives a reboot.
const defaultStateParent = "/var/lib"

// ProgramsDir is where programs are that the container runtime executes on the host.
func (p *Plugin) ProgramsDir() string { return filepath.Join(p.Paths.StateDir, "programs") }

// FormerProgramsDir is where earlier versions kept them. Users other than root cannot reach it.
func (p *Plugin) FormerProgramsDir() string { return filepath.Join(p.PluginDir(), "bin") }

// validate names every value that cannot work, with the flag that sets it.
func (p *Plugin) validate() error {
	var problems []error
	bad := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if problem := validation.IsDNS1123Subdomain(p.DriverName); len(problem) > 0 || len(p.DriverName) > 63 {
		bad("driver-name", "%q is not a DNS subdomain of at most 63 characters", p.DriverName)
	}
	if p.NodeName == "" {
		bad("node-name", "is empty; set it, or NODE_NAME, to the Node's name")
	}
	p.validatePaths(bad)
	p.NodeConfig.validate(bad)
	if _, _, err := net.SplitHostPort(p.Serving.HTTPEndpoint); p.Serving.HTTPEndpoint != "" && err != nil {
		bad("http-endpoint", "%q is not <address>:<port>", p.Serving.HTTPEndpoint)
	}
	if p.Serving.LogVerbosity < 0 || p.Serving.LogVerbosity > 10 {
		bad("log-verbosity", "%d is not in 0..10", p.Serving.LogVerbosity)
	}
	if !slices.Contains([]string{"text", "json"}, p.Serving.LogFormat) {
		bad("log-format", "%q is neither text nor json", p.Serving.LogFormat)
	}
	if !slices.Contains(monitorDevices, p.MonitorDevices) {
		bad("monitor-devices", "unsupported value %q; supported values: %s", p.MonitorDevices, strings.Join(monitorDevices, ", "))
	}
	if p.KubeAPI.QPS == 0 || p.KubeAPI.Burst < 1 {
		bad("kube-api-qps", "%v with a burst of %d lets no request through", p.KubeAPI.QPS, p.KubeAPI.Burst)
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

func (c NodeConfig) validate(bad func(flag, format string, args ...any)) {
	if c.File != "" && c.Map != "" {
		bad("node-config", "is set and --node-config-map too; set one of them")
	}
	if c.File != "" && !filepath.IsAbs(c.File) {
		bad("node-config", "%q is not an absolute path", c.File)
	}
	if parts := strings.Split(c.Map, "/"); c.Map != "" && (len(parts) != 2 || parts[0] == "" || parts[1] == "") {
		bad("node-config-map", "%q is not <namespace>/<name>", c.Map)
	}
	if c.Name != "" && c.Map == "" {
		bad("node-config-name", "is set without --node-config-map")
	}
	if problem := validation.IsQualifiedName(c.Label); c.Label != "" && len(problem) > 0 {
		bad("node-config-label", "%q is not the key of a label", c.Label)
	}
	for _, name := range c.Fallbacks {
		if !slices.Contains(fallbacks, name) {
			bad("node-config-fallbacks", "unknown fallback strategy: %s; allowed: %s", name, strings.Join(fallbacks, ", "))
		}
	}
}

func (p *Plugin) validatePaths(bad func(flag, format string, args ...any)) {
	for flag, path := range map[string]string{
		"host-root": p.Paths.HostRoot, "cdi-root": p.Paths.CDIRoot,
		"kubelet-plugins-dir": p.Paths.KubeletPlugins, "kubelet-registrar-dir": p.Paths.KubeletRegistrar,
		"kubelet-pod-resources-socket": p.Paths.KubeletPodResources, "state-dir": p.Paths.StateDir,
	} {
		if !filepath.IsAbs(path) {
			bad(flag, "%q is not an absolute path", path)
		}
	}
	for flag, path := range map[string]string{"driver-root": p.Driver.Root, "cdi-hook": p.Driver.CDIHook} {
		if path != "" && !filepath.IsAbs(path) && (flag != "cdi-hook" || path != NoCDIHook) {
			bad(flag, "%q is not an absolute path of the host", path)
		}
	}
}
