package config

import (
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
)

// Plugin is the configuration of prism-kubelet-plugin. Its JSON form is the format of the file, and is printed at start.
type Plugin struct {
	// DriverName is the name of the DRA driver; it also sets attribute domain, CDI vendor, socket and state directories.
	DriverName string `json:"driverName"`
	// Release is the namespace and name of the installation, which identifies its directories on the node after a change of the driver name;
	// empty: none.
	Release string `json:"release,omitempty"`
	// NodeName is the Node of this process.
	NodeName string `json:"nodeName"`
	// PodUID enables rolling updates: two versions may run at once. Empty outside of a pod.
	PodUID string `json:"podUID,omitempty"`
	// Kubeconfig is a file; empty: the pod's service account.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// KubeAPI limits requests to the API server, per second and in a burst.
	KubeAPI Rate `json:"kubeAPI"`
	// SchedulerVersion is the version of the cluster's oldest scheduler; empty: the version of the API server.
	SchedulerVersion string `json:"schedulerVersion,omitempty"`
	// Paths are paths of this process and of the host.
	Paths Paths `json:"paths"`
	// Driver configures the detection of the NVIDIA driver.
	Driver Driver `json:"driver"`
	// NodeConfig is the source of the node configuration.
	NodeConfig NodeConfig `json:"nodeConfig"`
	// Serving configures the HTTP endpoint and the logs.
	Serving Serving `json:"serving"`
	// DeviceMetadata mounts a file with the attributes of the devices into containers (KEP-5304).
	DeviceMetadata bool `json:"deviceMetadata"`
	// MonitorDevices is MonitorNever or MonitorPerNode.
	MonitorDevices string `json:"monitorDevices"`
	// PerfmonDevices is PerfmonNever or PerfmonPerGPU.
	PerfmonDevices string `json:"perfmonDevices"`
	// Exporter is set if prism-exporter runs on the node, so that claims can expose their metrics in their containers.
	Exporter bool `json:"exporter"`
	// Profiler configures profiles on the node.
	Profiler Profiler `json:"profiler"`
	// Health configures which problems of GPUs keep claims away.
	Health Health `json:"health"`
}

// The values of MonitorDevices.
const (
	// MonitorNever: claims with admin access use the class of whole GPUs.
	MonitorNever = "Never"
	// MonitorPerNode: a device for claims with admin access only, which shows all GPUs of the node.
	MonitorPerNode = "PerNode"
)

// The values of PerfmonDevices.
const (
	PerfmonNever = "Never"
	// PerfmonPerGPU: a device for each GPU, which is the exclusive right to its performance counters.
	PerfmonPerGPU = "PerGPU"
)

var (
	monitorDevices = []string{MonitorNever, MonitorPerNode}
	perfmonDevices = []string{PerfmonNever, PerfmonPerGPU}
)

// Rate is a token bucket.
type Rate struct {
	QPS   float64 `json:"qps"`
	Burst int     `json:"burst"`
}

// Paths are directories, as seen by this process.
type Paths struct {
	// HostRoot is the mount point of the host's root file system.
	HostRoot string `json:"hostRoot"`
	// CDIRoot is a directory from which container runtimes read CDI specs.
	CDIRoot string `json:"cdiRoot"`
	// KubeletPlugins and KubeletRegistrar are the kubelet's; the same path on the host.
	KubeletPlugins   string `json:"kubeletPlugins"`
	KubeletRegistrar string `json:"kubeletRegistrar"`
	// KubeletPodResources is the PodResources socket of the kubelet.
	KubeletPodResources string `json:"kubeletPodResources"`
	// CRISocket is the path of the container runtime's socket on the host; empty: detected.
	CRISocket string `json:"criSocket,omitempty"`
	// StateDir is the state directory of Prism, outside of the kubelet's directory; the same path on the host. It contains programs that the
	// container runtime executes, so its mount must not use the option noexec, and users other than root must be able to reach it: in a pod
	// with hostUsers false the runtime executes hooks as such a user.
	StateDir string `json:"stateDir"`
	// RunDir is the directory that Prism's programs share on a node until it is rebooted; the same path on the host. Empty: /run/<driver
	// name>.
	RunDir string `json:"runDir,omitempty"`
}

// Driver configures the detection of the NVIDIA driver.
type Driver struct {
	// Root is the root directory of the driver on the host; empty: the value of the node configuration, or detected.
	Root string `json:"root,omitempty"`
	// SearchDirs are directories in the driver's root that are searched for its libraries and programs before the default ones.
	SearchDirs Names `json:"searchDirs,omitempty"`
	// CDIHook is the path of nvidia-cdi-hook on the host, or HostCDIHook, OwnCDIHook or NoCDIHook; empty: the host's, and the plugin's own for
	// hooks that the host's does not support.
	CDIHook string `json:"cdiHook,omitempty"`
	// FailOnInitError makes the process exit if the driver does not respond at start and no claim is prepared; nil: the value of the node
	// configuration.
	FailOnInitError *bool `json:"failOnInitError,omitempty"`
	// Graphics adds the device nodes of a GPU below /dev/dri to its containers.
	Graphics bool `json:"graphics"`
	// CUDACompat uses the CUDA compatibility libraries of images if they are newer than the driver's.
	CUDACompat bool `json:"cudaCompat"`
}

// The values of CDIHook that are not paths.
const (
	// HostCDIHook uses only the host's program: CDI specs omit hooks that it does not support.
	HostCDIHook = "host"
	// OwnCDIHook uses only the plugin's own program.
	OwnCDIHook = "own"
	// NoCDIHook omits hooks from CDI specs.
	NoCDIHook = "none"
)

var cdiHooks = []string{HostCDIHook, OwnCDIHook, NoCDIHook}

// NodeConfig is the source of the node configuration. Without a file and a ConfigMap GPUs are advertised whole.
type NodeConfig struct {
	// File is a node configuration in either format.
	File string `json:"file,omitempty"`
	// Map is "<namespace>/<name>" of a ConfigMap of node configurations.
	Map string `json:"map,omitempty"`
	// Label is the key of the node label that names the entry; empty: labels are ignored.
	Label string `json:"label,omitempty"`
	// Name is the entry for nodes without that label; empty: Fallbacks apply.
	Name string `json:"name,omitempty"`
	// Fallbacks are tried in this order: named, single, empty.
	Fallbacks Names `json:"fallbacks,omitempty"`
}

// Serving configures the HTTP endpoint and the logs.
type Serving struct {
	// HTTPEndpoint is the address of /metrics, /healthz and /readyz: "<address>:<port>"; empty: disabled.
	HTTPEndpoint string `json:"httpEndpoint"`
	// Pprof adds /debug/pprof at that address.
	Pprof bool `json:"pprof"`
	// Logging configures the logs.
	Logging
}

// LoadPlugin reads the configuration from the arguments after the program name, the environment and the file that --config
// or PRISM_CONFIG names. The error joins all validation errors.
func LoadPlugin(args []string, getenv func(string) string) (*Plugin, error) {
	return loadWithFile(defaults(), args, getenv)
}

// defaults are the values in a pod of the chart.
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
		Serving:        Serving{HTTPEndpoint: ":8080", Logging: defaultLogging},
		DeviceMetadata: true,
		Driver:         Driver{Graphics: true},
		MonitorDevices: MonitorNever,
		PerfmonDevices: PerfmonNever,
		Profiler:       defaultProfiler(),
	}
}

// flags binds every field to a flag; the value of the field is the default.
func (p *Plugin) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-kubelet-plugin", pflag.ContinueOnError)
	f.StringVar(&p.DriverName, "driver-name", p.DriverName, "name of the DRA driver; sets attribute domain, CDI vendor, socket and state directories")
	f.StringVar(&p.Release, "release", p.Release, "<namespace>/<name> of the installation, which identifies its directories on the node after a change of the driver name; empty: none")
	f.StringVar(&p.NodeName, "node-name", p.NodeName, "name of the Node of this process")
	f.StringVar(&p.PodUID, "pod-uid", p.PodUID, "UID of the pod of this process; enables rolling updates")
	f.StringVar(&p.Kubeconfig, "kubeconfig", p.Kubeconfig, "kubeconfig file; empty: service account of the pod")
	f.Float64Var(&p.KubeAPI.QPS, "kube-api-qps", p.KubeAPI.QPS, "requests per second to the API server; -1: no limit")
	f.IntVar(&p.KubeAPI.Burst, "kube-api-burst", p.KubeAPI.Burst, "burst of requests to the API server")
	f.StringVar(&p.SchedulerVersion, "scheduler-version", p.SchedulerVersion, "version of the cluster's oldest scheduler, if it is older than the API server: "+
		"MIG devices and shares require one that counts them; empty: the API server's")
	f.StringVar(&p.Paths.HostRoot, "host-root", p.Paths.HostRoot, "mount point of the root filesystem of the host")
	f.StringVar(&p.Paths.CDIRoot, "cdi-root", p.Paths.CDIRoot, "directory for CDI specs")
	f.StringVar(&p.Paths.KubeletPlugins, "kubelet-plugins-dir", p.Paths.KubeletPlugins, "plugins directory of the kubelet")
	f.StringVar(&p.Paths.KubeletRegistrar, "kubelet-registrar-dir", p.Paths.KubeletRegistrar, "directory of registration sockets of the kubelet")
	f.StringVar(&p.Paths.KubeletPodResources, "kubelet-pod-resources-socket", p.Paths.KubeletPodResources, "PodResources socket of the kubelet")
	f.StringVar(&p.Paths.CRISocket, "cri-socket", p.Paths.CRISocket, "socket of the container runtime on the host; empty: detected")
	f.StringVar(&p.Paths.StateDir, "state-dir", p.Paths.StateDir, "state directory of Prism, with the programs that the container runtime executes; "+
		"empty: /var/lib/<driver name>")
	f.StringVar(&p.Paths.RunDir, "run-dir", p.Paths.RunDir, "directory that Prism's programs share on a node, the same on the host; empty: /run/<driver name>")
	p.Driver.flags(f)
	f.StringVar(&p.NodeConfig.File, "node-config", p.NodeConfig.File, "file that defines the devices to advertise: a NodeConfig, or a configuration of NVIDIA's device plugin")
	f.StringVar(&p.NodeConfig.Map, "node-config-map", p.NodeConfig.Map, "<namespace>/<name> of a ConfigMap with node configurations")
	f.StringVar(&p.NodeConfig.Name, "node-config-name", p.NodeConfig.Name, "entry of the ConfigMap for nodes without the label; empty: node-config-fallbacks apply")
	f.StringVar(&p.NodeConfig.Label, "node-config-label", p.NodeConfig.Label, "key of the node label whose value is the name of the entry; empty: labels are ignored")
	f.Var(&p.NodeConfig.Fallbacks, "node-config-fallbacks", "fallback strategies in order: named, single, empty")
	f.StringVar(&p.Serving.HTTPEndpoint, "http-endpoint", p.Serving.HTTPEndpoint, "address of /metrics, /healthz and /readyz; empty: none")
	f.BoolVar(&p.Serving.Pprof, "pprof", p.Serving.Pprof, "serve /debug/pprof at the HTTP endpoint")
	p.Serving.flags(f)
	f.BoolVar(&p.DeviceMetadata, "device-metadata", p.DeviceMetadata, "mount a file with the attributes of the devices into containers (KEP-5304)")
	f.StringVar(&p.MonitorDevices, "monitor-devices", p.MonitorDevices, "whether the node advertises a monitor device, which shows all its GPUs to claims with admin "+
		"access: "+strings.Join(monitorDevices, ", "))
	f.StringVar(&p.PerfmonDevices, "perfmon-devices", p.PerfmonDevices, "whether the node advertises a perfmon device for each GPU, which is the exclusive right to "+
		"its performance counters: "+strings.Join(perfmonDevices, ", "))
	p.Profiler.flags(f)
	p.Health.flags(f)
	f.BoolVar(&p.Exporter, "exporter", p.Exporter, "whether prism-exporter runs on the node, so that claims may expose their metrics in their containers")
	return f
}

// flags binds the fields of the driver.
func (d *Driver) flags(f *pflag.FlagSet) {
	f.StringVar(&d.Root, "driver-root", d.Root, "root directory of the NVIDIA driver on the host; empty: the value of the node configuration, or detected")
	f.Var(&d.SearchDirs, "driver-search-dirs", searchDirsUsage)
	f.StringVar(&d.CDIHook, "cdi-hook", d.CDIHook, "path of nvidia-cdi-hook on the host, without hooks that it does not support; empty: "+
		"detected, and the plugin's own for hooks that it does not support; host: detected, own: the plugin's own, none: no hooks in CDI specs")
	f.BoolVar(&d.Graphics, "graphics", d.Graphics, "add the device nodes below /dev/dri of a GPU to its containers")
	f.BoolVar(&d.CUDACompat, "cuda-compat", d.CUDACompat, "use the CUDA compatibility libraries of images if they are newer than the driver's")
	f.VarPF(choice{&d.FailOnInitError}, "fail-on-init-error", "", "exit if the NVIDIA driver does not respond at start and no claim is prepared; "+
		"unset: the value of the node configuration").NoOptDefVal = "true"
}

// derive sets values that depend on other values.
func (p *Plugin) derive() {
	if p.Paths.StateDir == "" {
		p.Paths.StateDir = DefaultStateDir(p.DriverName)
	}
	clean(&p.Paths.HostRoot, &p.Paths.CDIRoot, &p.Paths.KubeletPlugins, &p.Paths.KubeletRegistrar, &p.Paths.KubeletPodResources, &p.Paths.StateDir,
		&p.Paths.RunDir, &p.Driver.Root, &p.Driver.CDIHook, &p.NodeConfig.File)
}

// validate reports every invalid value, with the flag that sets it.
func (p *Plugin) validate(bad invalid) {
	validateDriverName(p.DriverName, bad)
	if p.NodeName == "" {
		bad("node-name", "required: set it or NODE_NAME to the name of the Node")
	}
	p.validatePaths(bad)
	p.NodeConfig.validate(bad)
	p.Profiler.validate(bad)
	p.Health.validate(bad)
	if _, _, err := net.SplitHostPort(p.Serving.HTTPEndpoint); p.Serving.HTTPEndpoint != "" && err != nil {
		bad("http-endpoint", "must be <address>:<port>, got %q", p.Serving.HTTPEndpoint)
	}
	p.Serving.validate(bad)
	if !slices.Contains(monitorDevices, p.MonitorDevices) {
		bad("monitor-devices", "unsupported value %q; supported values: %s", p.MonitorDevices, strings.Join(monitorDevices, ", "))
	}
	if !slices.Contains(perfmonDevices, p.PerfmonDevices) {
		bad("perfmon-devices", "unsupported value %q; supported values: %s", p.PerfmonDevices, strings.Join(perfmonDevices, ", "))
	}
	p.KubeAPI.validate(bad)
	if _, err := version.ParseGeneric(p.SchedulerVersion); p.SchedulerVersion != "" && err != nil {
		bad("scheduler-version", "must be a version such as 1.36.2, got %q", p.SchedulerVersion)
	}
}

func (r Rate) validate(bad invalid) {
	if r.QPS == 0 || r.Burst < 1 {
		bad("kube-api-qps", "must not be 0 and --kube-api-burst must be greater than or equal to 1, got %v and %d", r.QPS, r.Burst)
	}
}

// validMap reports whether a text is empty or "<namespace>/<name>".
func validMap(text string) bool {
	parts := strings.Split(text, "/")
	return text == "" || len(parts) == 2 && parts[0] != "" && parts[1] != ""
}

func (c NodeConfig) validate(bad invalid) {
	if c.File != "" && c.Map != "" {
		bad("node-config", "must not be set together with --node-config-map; remove one of them")
	}
	if c.File != "" && !filepath.IsAbs(c.File) {
		bad("node-config", "must be an absolute path, got %q", c.File)
	}
	if !validMap(c.Map) {
		bad("node-config-map", "must be <namespace>/<name>, got %q", c.Map)
	}
	if c.Name != "" && c.Map == "" {
		bad("node-config-name", "requires --node-config-map")
	}
	if problem := validation.IsQualifiedName(c.Label); c.Label != "" && len(problem) > 0 {
		bad("node-config-label", "must be a label key, got %q", c.Label)
	}
	for _, name := range c.Fallbacks {
		if !slices.Contains(fallbacks, name) {
			bad("node-config-fallbacks", "unsupported value %q; supported values: %s", name, strings.Join(fallbacks, ", "))
		}
	}
}

func (p *Plugin) validatePaths(bad invalid) {
	for flag, path := range map[string]string{
		"host-root": p.Paths.HostRoot, "cdi-root": p.Paths.CDIRoot,
		"kubelet-plugins-dir": p.Paths.KubeletPlugins, "kubelet-registrar-dir": p.Paths.KubeletRegistrar,
		"kubelet-pod-resources-socket": p.Paths.KubeletPodResources, "state-dir": p.Paths.StateDir, "run-dir": p.RunDir(),
	} {
		if !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path, got %q", path)
		}
	}
	if socket := p.Paths.CRISocket; socket != "" && !filepath.IsAbs(socket) {
		bad("cri-socket", "must be an absolute path of the host, got %q", socket)
	}
	if root := p.Driver.Root; root != "" && !filepath.IsAbs(root) {
		bad("driver-root", "must be an absolute path of the host, got %q", root)
	}
	p.Driver.SearchDirs.validatePaths("driver-search-dirs", bad)
	if hook := p.Driver.CDIHook; hook != "" && !filepath.IsAbs(hook) && !slices.Contains(cdiHooks, hook) {
		bad("cdi-hook", "must be an absolute path of the host, or one of %s, got %q", strings.Join(cdiHooks, ", "), hook)
	}
}
