package walls

// rule limits what some packages may import.
type rule struct {
	// of are its packages, as patterns of path.Match below the module; except are the free ones among them. A pattern that ends in "/..." stands
	// for a folder and everything below it.
	of, except []string
	// ours are the packages of the product that they may import, also indirectly, besides the packages of the rule's own folders that are below
	// them; nil allows all.
	ours []string
	// not are import paths that they must not import directly, with all paths below; a path that ends in "$" stands for itself alone.
	not []string
	// never are import paths that they must not import at all, not even indirectly; written like not.
	never []string
	// because is the reason, for the author of an import that the rule forbids.
	because string
}

var (
	product = []string{"pkg/...", "cmd/...", "api/..."}
	parts   = []string{"pkg/...", "api/..."}

	// base are packages that import no other package of Prism, and ground adds the configuration to them.
	base = []string{
		"api/...", "pkg/gpu", "pkg/backoff", "pkg/disk", "pkg/events", "pkg/grpcread", "pkg/listen", "pkg/logging", "pkg/logging/plain",
		"pkg/maintenance", "pkg/profiler/counters", "pkg/profiler/native", "pkg/profiler/runplan", "pkg/profiler/seats", "pkg/profiler/session", "pkg/validation",
	}
	ground = concat(base, nil, "pkg/config")
	// plans are packages that compute: the same input has the same result.
	plans = []string{"pkg/claim", "pkg/nodeconfig", "pkg/pattern", "pkg/plugin/publish"}
	// records are packages that read the records of claims.
	records = []string{"pkg/checkpoint", "pkg/hook/protocol", "pkg/plugin/cdi", "pkg/plugin/ownership", "pkg/plugin/prepare/gc"}
	steps   = []string{"pkg/plugin/memlimit", "pkg/plugin/mig", "pkg/plugin/timeslice"}
	// onNode are programs of a node besides the plugin and the exporter.
	onNode = []string{"pkg/mpsd/...", "pkg/profiler/collector", "pkg/profiler/tool/...", "cmd/prism-mpsd", "cmd/prism-tool"}
	// hardware are the packages that know the GPUs of the node or its published devices.
	hardware = []string{
		Module + "/pkg/nvml", Module + "/pkg/plugin/health", Module + "/pkg/plugin/inventory", Module + "/pkg/plugin/layout",
		Module + "/pkg/plugin/publish",
	}
	effects = []string{"os", "net", "context$", "syscall$", "log", "golang.org/x/sys", "k8s.io/client-go", "k8s.io/klog", "github.com/go-logr"}
)

var rules = []rule{
	{
		of: base, ours: []string{"api/..."},
		because: "every package can use it only if it imports no other package of Prism",
	},
	{
		of: []string{"pkg/config"}, ours: []string{"api/...", "pkg/gpu"},
		because: "every program reads its configuration with it, and links all packages that it imports",
	},
	{
		of: append([]string{"pkg/exporter/metrics"}, plans...), ours: []string{"api/...", "pkg/gpu", "pkg/pattern"}, not: effects,
		because: "it computes: the same input has the same result, without files, network, log or context",
	},
	{
		of: []string{"pkg/plugin/health/finding"}, ours: []string{"api/...", "pkg/gpu"}, not: effects,
		because: "which problems a GPU has follows from readings and times that are passed in",
	},
	{
		of: plans, not: []string{"time$"},
		because: "a plan does not depend on the time at which it is made",
	},
	{
		of: records, ours: append([]string{"pkg/gpu", "pkg/disk"}, records...),
		because: "records outlive every other package: a claim is undone by its record alone",
	},
	{
		of:      []string{"pkg/plugin/prepare", "pkg/plugin/reconcile"},
		ours:    concat(records, ground, "pkg/claim", "pkg/pattern", "pkg/plugin/prepare"),
		not:     []string{"net", "os", "google.golang.org/grpc", "k8s.io/client-go", "k8s.io/kubelet"},
		because: "the transaction and the reconciler decide, and act through ports: they import neither a step nor an adapter",
	},
	{
		of: steps, ours: concat(records, ground, "pkg/claim", "pkg/pattern"),
		because: "a step declares the ports that it needs, and does not know other steps",
	},
	{
		of:      []string{"pkg/plugin/claimmetrics", "pkg/plugin/diagnostics", "pkg/plugin/extension", "pkg/plugin/mps", "pkg/plugin/profiler/...", "pkg/plugin/programs"},
		never:   hardware,
		because: "work for a claim depends neither on the GPUs of the node nor on published devices",
	},
	{
		of: []string{"pkg/plugin/profiler/counting"},
		ours: concat(records, ground, "pkg/claim", "pkg/pattern", "pkg/plugin/driver", "pkg/plugin/extension", "pkg/plugin/kube", "pkg/plugin/prepare",
			"pkg/plugin/profiler/untrusted"),
		not:     []string{"k8s.io/client-go", "net"},
		because: "an order follows from a record alone, and prism-collector answers by files: neither needs the store of reports nor the cluster",
	},
	{
		of:      []string{"pkg/hostfs/...", "pkg/nvml/...", "pkg/podresources", "pkg/plugin/cdihook", "pkg/plugin/cri", "pkg/plugin/kube", "pkg/plugin/nvsmi"},
		ours:    []string{"pkg/gpu", "pkg/grpcread", "pkg/hostfs", "pkg/nvml/library"},
		because: "an adapter does not know its users",
	},
	{
		of: []string{"pkg/plugin/health", "pkg/plugin/inventory", "pkg/plugin/layout/...", "pkg/plugin/maintenance"},
		ours: concat(ground, nil, "pkg/checkpoint", "pkg/hostfs", "pkg/nodeconfig", "pkg/plugin/health/...", "pkg/plugin/inventory", "pkg/plugin/kube",
			"pkg/plugin/layout", "pkg/plugin/publish"),
		not:     []string{"net"},
		because: "published devices follow from configuration, hardware and records, and not from the preparation of claims",
	},
	{
		of: []string{"pkg/plugin/driver"}, ours: concat(records, ground, "pkg/claim", "pkg/pattern", "pkg/plugin/kube", "pkg/plugin/prepare"),
		because: "the kubelet's protocol depends neither on the GPUs of the node nor on published devices",
	},
	{
		of:      []string{"pkg/exporter/...", "cmd/prism-exporter"},
		ours:    concat(ground, nil, "pkg/checkpoint", "pkg/hostfs", "pkg/mpsd/state", "pkg/nvml/library", "pkg/podresources", "pkg/exporter/..."),
		never:   []string{"github.com/NVIDIA/nvidia-container-toolkit", "k8s.io/api", "k8s.io/apimachinery/pkg/apis", "k8s.io/client-go"},
		because: "the exporter has no credentials for the API server, and prepares nothing",
	},
	{
		of:      []string{"pkg/controller/...", "cmd/prism-controller"},
		ours:    concat(ground, nil, "pkg/claim", "pkg/nodeconfig", "pkg/pattern", "pkg/profiler/report", "pkg/profiler/rules", "pkg/controller/..."),
		not:     []string{"os/exec"},
		because: "the controller knows configurations and the API server, and no node",
	},
	{
		of: []string{"pkg/cli/...", "cmd/kubectl-prism"},
		ours: concat(ground, nil, "pkg/claim", "pkg/pattern", "pkg/plugin/health/finding", "pkg/profiler/processmatch", "pkg/profiler/report",
			"pkg/profiler/rules", "pkg/cli/..."),
		because: "the user's program asks the API server, and needs nothing of a node",
	},
	{
		of:   []string{"pkg/cli/clusterview", "pkg/cli/explain"},
		ours: []string{"pkg/cli/clusterview", "pkg/gpu", "pkg/maintenance", "pkg/plugin/health/finding"},
		// The scheduler's helpers require a logger of go-logr, which may be none.
		not:     []string{"os", "net", "io/fs", "syscall$", "log", "golang.org/x/sys", "k8s.io/client-go", "k8s.io/utils/clock", "k8s.io/klog"},
		never:   []string{"k8s.io/client-go", "k8s.io/kubernetes"},
		because: "an explanation follows from the objects that are passed in: without API server, files and clock",
	},
	{
		of:      onNode,
		ours:    concat(ground, onNode, "pkg/hostfs", "pkg/profiler/nsight"),
		never:   []string{"k8s.io/client-go"},
		because: "a program that works for the plugin knows neither claims nor the API server",
	},
	{
		of: []string{"pkg/validation/...", "cmd/prism-validate"}, ours: []string{"pkg/validation/..."},
		not:     []string{"net/http", "os/exec", "k8s.io", "github.com/spf13"},
		because: "it runs in containers of users, and only checks their GPUs",
	},
	{
		of:      []string{"pkg/hook/...", "cmd/prism-hook"},
		ours:    []string{"api/perl", "pkg/hook/...", "pkg/pattern"},
		not:     []string{"net/http", "os/exec", "k8s.io", "tags.cncf.io", "github.com/spf13"},
		because: "the runtime starts the hook for every container that needs it: it is small and starts quickly",
	},
	{
		of: []string{"pkg/profiler/nsight", "pkg/profiler/processmatch", "pkg/profiler/report", "pkg/profiler/rules"}, ours: []string{"api/...", "pkg/gpu", "pkg/pattern"},
		not:     []string{"net$", "net/http", "k8s.io/client-go"},
		because: "nodes, the controller and kubectl prism use it alike",
	},
	{
		of: product, except: []string{"pkg/nvml/...", "pkg/exporter/sampling"}, not: []string{"github.com/NVIDIA"},
		because: "only pkg/nvml and pkg/exporter/sampling use the vendor's libraries",
	},
	{
		of: product, not: []string{"k8s.io/client-go"}, except: []string{
			"cmd/...", "pkg/cli/...", "pkg/controller/...", "pkg/plugin", "pkg/plugin/driver", "pkg/plugin/extension", "pkg/plugin/kube", "pkg/plugin/profiler",
		},
		because: "only the controller, kubectl prism and four packages of the plugin ask the API server",
	},
	{
		of: product, except: []string{"pkg/plugin/driver"}, not: []string{"k8s.io/dynamic-resource-allocation/kubeletplugin"},
		because: "only pkg/plugin/driver serves the kubelet",
	},
	{
		of: product, except: []string{"pkg/plugin/cdihook", "pkg/plugin/nvsmi", "pkg/mpsd", "pkg/profiler/tool"}, not: []string{"os/exec"},
		because: "only pkg/plugin/cdihook, pkg/plugin/nvsmi, pkg/mpsd and pkg/profiler/tool run programs",
	},
	{
		of: parts, not: []string{Module + "/cmd", Module + "/pkg/plugin$"},
		because: "programs put packages together, and no package imports a program",
	},
	{
		of: product, not: []string{"k8s.io/kubernetes", Module + "/test", Module + "/hack", Module + "/deployments", "testing", "github.com/stretchr/testify"},
		because: "the product contains neither tests nor code of the API server",
	},
}

// concat joins lists of patterns.
func concat(a, b []string, more ...string) []string {
	return append(append(append([]string{}, a...), b...), more...)
}
