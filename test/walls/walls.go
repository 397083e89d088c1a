// Package walls defines which packages of the product may import which. The linter's rules (depguard in .golangci.yml) are generated from
// it, for editors; the test checks all direct and indirect imports of a package.
package walls

//go:generate go run ./cmd/depguard ../../.golangci.yml

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the module of the product.
const Module = "github.com/prism-gpu/prism"

// Package is a package in the output of `go list -json`, without tests.
type Package struct {
	ImportPath string
	// Imports are its direct imports, Deps all direct and indirect ones.
	Imports, Deps []string
}

// wall keeps some packages from importing others.
type wall struct {
	// name is the name of the linter's rule.
	name string
	// of are the packages behind the wall, as patterns of path.Match below the module; except are the free ones among them.
	of, except []string
	// ours are the packages of the product that they may import, also indirectly; nil allows all.
	ours []string
	// named are import paths that they may not import directly, with all paths below; a name that ends in "$" stands for itself alone.
	named []string
	// deps are import paths that they may not import at all, not even indirectly; written like named.
	deps []string
	// tests says that the linter also applies the wall to their tests, which may import packages below the module's test folder.
	tests bool
	// because is the reason, for the author of an import that the wall forbids.
	because string
}

// none allows no package of the product.
var none = []string{}

var (
	pure      = []string{"pkg/claim", "pkg/publish", "pkg/nodeconfig"}
	steps     = []string{"pkg/mig", "pkg/timeslice", "pkg/memlimit", "pkg/profiler"}
	nouns     = []string{"pkg/gpu", "api/*"}
	records   = []string{"pkg/gpu", "pkg/disk", "pkg/checkpoint"}
	phases    = append([]string{"pkg/claim", "pkg/pattern", "pkg/cdi", "pkg/hook/protocol", "pkg/disk", "pkg/checkpoint", "pkg/ownership", "pkg/prepare/gc"}, nouns...)
	reconcile = append([]string{"pkg/prepare", "pkg/reconcile"}, phases...)
	layout    = append([]string{
		"pkg/checkpoint", "pkg/nodeconfig", "pkg/publish", "pkg/inventory", "pkg/kube", "pkg/hostfs", "pkg/disk", "pkg/events", "pkg/backoff",
	}, nouns...)
	clocks = []string{
		"os", "time$", "context$", "net", "syscall$", "log", "golang.org/x/sys", "k8s.io/client-go", "k8s.io/klog", "github.com/go-logr",
	}
	// prepares are packages that only programs need that prepare claims or ask the API server.
	prepares = []string{
		"k8s.io/client-go", "k8s.io/api", "github.com/NVIDIA/nvidia-container-toolkit", Module + "/pkg/nvml$", Module + "/pkg/kube", Module + "/pkg/driver",
		Module + "/pkg/prepare", Module + "/pkg/plugin",
	}
	// apiTypes imports the encoders of all API objects: a tenth of a small program.
	apiTypes = "k8s.io/apimachinery/pkg/apis"
	apiSide  = []string{"cmd/*", "pkg/plugin", "pkg/driver", "pkg/kube", "pkg/controller", "pkg/admission", "pkg/reports", "pkg/cli", "pkg/cli/*", "pkg/plugin/extension", "pkg/plugin/profiler"}
	product  = []string{"pkg", "pkg/*", "pkg/*/*", "cmd/*", "api/*"}
	parts    = []string{"pkg", "pkg/*", "pkg/*/*", "api/*"}
)

var walls = []wall{
	{name: "nouns", of: []string{"pkg/gpu"}, ours: none, tests: true, because: "the nouns import nothing of ours, so that every package can speak in them"},
	{name: "api", of: []string{"api/*"}, ours: []string{"api/perl"}, tests: true, because: "the API imports nothing of ours: it is the users'"},
	{name: "pure", of: pure, ours: append([]string{"pkg/pattern"}, nouns...), named: clocks, because: "planning and publishing are pure: same input, same plan"},
	{
		name: "profiler-files", of: []string{"pkg/profiler/runplan", "pkg/profiler/native"}, ours: none, named: []string{"os", "context$", "net", "syscall$", "log"},
		because: "what programs in containers read is pure data",
	},
	{
		name: "pattern", of: []string{"pkg/pattern"}, ours: []string{"api/perl"}, named: clocks,
		because: "patterns are pure: same pattern, same table, on every node and in the controller",
	},
	{name: "records", of: []string{"pkg/checkpoint"}, ours: []string{"pkg/gpu", "pkg/disk"}, tests: true, because: "records outlive every other package"},
	{name: "specs", of: []string{"pkg/cdi"}, ours: append([]string{"pkg/hook/protocol"}, records...), tests: true, because: "specs are joined from records and from what others found out"},
	{
		name: "metrics", of: []string{"pkg/metrics"}, ours: []string{"pkg/gpu"},
		named:   []string{"os", "context$", "net", "syscall$", "log", "golang.org/x/sys", "k8s.io", "github.com/NVIDIA"},
		because: "what is measured and how it is shown is pure: same samples, same page",
	},
	{
		name: "sampler", of: []string{"pkg/sampler"}, ours: []string{"pkg/gpu", "pkg/metrics", "pkg/backoff"}, named: []string{"os", "net", "k8s.io", "github.com/NVIDIA"},
		because: "the sampler keeps time and asks the driver and the node through ports",
	},
	{
		name: "allocation", of: []string{"pkg/allocation"}, named: []string{"k8s.io/client-go"},
		ours:    []string{"pkg/gpu", "pkg/disk", "pkg/checkpoint", "pkg/metrics", "pkg/podresources", "pkg/grpcread", "pkg/hostfs", "pkg/backoff"},
		because: "which container has which device is read from records, the kubelet, the runtime and /proc, never from the API server",
	},
	{
		name: "exporter", of: []string{"pkg/exporter", "cmd/prism-exporter"}, deps: append([]string{apiTypes}, prepares...),
		because: "the exporter has no API credentials and prepares nothing",
	},
	{
		name: "profiles", of: []string{"pkg/profiler/nsight", "pkg/profiler/rules"}, ours: nouns, tests: true,
		named:   []string{"os", "net", "log", "k8s.io/client-go", "k8s.io/klog", "github.com/go-logr"},
		because: "how processes are profiled is pure: same configuration, same switches",
	},
	{
		name: "ownership", of: []string{"pkg/ownership"}, ours: records, tests: true,
		because: "ownership is what records say, and gpu.Excludes decides what excludes what",
	},
	{
		name: "gc", of: []string{"pkg/prepare/gc"}, ours: append([]string{"pkg/ownership"}, records...), tests: true,
		because: "what is leaked has no claim, and the collector asks and acts through ports",
	},
	{
		name: "transaction", of: []string{"pkg/prepare"}, ours: phases, tests: true,
		because: "the transaction declares ports and never imports a step or an adapter",
	},
	{
		name: "reconciler", of: []string{"pkg/reconcile"}, ours: reconcile, named: []string{"os", "net", "k8s.io/kubelet", "google.golang.org/grpc"},
		because: "the reconciler decides and keeps time, and asks and acts through ports",
	},
	{
		name: "steps", of: steps, ours: append([]string{"pkg/checkpoint", "pkg/claim", "pkg/pattern", "pkg/cdi", "pkg/hook/protocol", "pkg/disk"}, nouns...),
		because: "a step declares the ports it needs and knows no other step",
	},
	{
		name: "profile-plan", of: []string{"pkg/profiler/plan"}, named: []string{"os", "net", "log", "k8s.io/client-go", "k8s.io/klog"},
		ours: append([]string{
			"pkg/checkpoint", "pkg/cdi", "pkg/hook/protocol", "pkg/disk", "pkg/pattern", "pkg/profiler/nsight", "pkg/profiler/runplan",
			"pkg/profiler/store", "pkg/profiler/report",
		}, nouns...),
		because: "what containers of a claim get is made from its record: equal records have equal plans",
	},
	{
		name: "profile-tool", of: []string{"pkg/profiler/tool", "pkg/profiler/tool/manifest", "cmd/prism-tool"},
		ours:    append([]string{"pkg/config", "pkg/logging/plain", "pkg/profiler/tool", "pkg/profiler/tool/manifest", "pkg/profiler/nsight", "pkg/profiler/runplan"}, nouns...),
		deps:    []string{"k8s.io/client-go"},
		because: "what runs in an administrator's image knows files and that image, and neither claims nor the API server",
	},
	{
		name: "reports", of: []string{"pkg/reports"}, ours: []string{"api/profiles/v1alpha1", "pkg/events", "pkg/profiler/report", "pkg/profiler/seats"}, named: []string{"os/exec"},
		because: "the API of reports asks nodes and reviews access, and stores nothing",
	},
	{
		name: "profile-store", of: []string{"pkg/profiler/store"}, ours: []string{"pkg/disk", "pkg/profiler/report"}, named: []string{"net", "k8s.io", "os/exec"},
		because: "what containers wrote is stored by a part that knows files and nothing else",
	},
	{
		name: "profile-node", of: []string{"pkg/profiler/node"}, ours: []string{"pkg/profiler/report", "pkg/listen", "pkg/profiler/seats"}, named: []string{"k8s.io"},
		because: "the node API asks a store through a port, and knows neither claims nor the API server",
	},
	{
		name: "hook", of: []string{"pkg/hook", "pkg/hook/*", "cmd/prism-hook"}, ours: []string{"api/perl", "pkg/hook", "pkg/hook/protocol", "pkg/pattern"},
		named:   []string{"net/http", "os/exec", "k8s.io", "tags.cncf.io", "github.com/spf13"},
		because: "the runtime starts the hook for every container that needs it: it is small and starts quickly",
	},
	{
		name: "adapters", of: []string{"pkg/cdihook", "pkg/nvml", "pkg/hostfs", "pkg/nvsmi"}, ours: []string{"pkg/gpu", "pkg/nvml/library"},
		because: "an adapter depends on the model and not on its users",
	},
	{
		name: "nvml-library", of: []string{"pkg/nvml/library"}, ours: []string{"pkg/gpu"}, named: []string{"github.com/NVIDIA/nvidia-container-toolkit"},
		because: "calls with deadlines are below all that asks the driver, and draw in nothing else",
	},
	{
		name: "sampling", of: []string{"pkg/nvml/sampling"}, ours: []string{"pkg/gpu", "pkg/metrics", "pkg/nvml/library"},
		named:   []string{"github.com/NVIDIA/nvidia-container-toolkit", "k8s.io"},
		because: "the exporter's adapter depends on the model and not on its users, and draws in neither nvcdi nor client-go",
	},
	{
		name: "cri", of: []string{"pkg/cri"}, ours: []string{"pkg/gpu", "pkg/hostfs"},
		because: "an adapter depends on the model and not on its users",
	},
	{
		name: "pcie", of: []string{"pkg/hostfs/pcie"}, ours: []string{"pkg/gpu", "pkg/hostfs"},
		because: "an adapter depends on the model and not on its users",
	},
	{
		name: "mps-service", of: []string{"pkg/mpsd"}, named: []string{"k8s.io/client-go"},
		ours:    []string{"pkg/gpu", "pkg/hostfs", "pkg/disk", "pkg/backoff", "pkg/mpsd/client"},
		because: "the MPS service owns processes and decides nothing: it knows neither claims nor the API server",
	},
	{
		name: "mps-client", of: []string{"pkg/mpsd/client"}, ours: []string{"pkg/gpu"}, named: []string{"os/exec"},
		because: "the client of the MPS service speaks the nouns, and its users draw in nothing else",
	},
	{
		name: "foundation", of: []string{"pkg/disk", "pkg/config", "pkg/logging", "pkg/logging/plain", "pkg/events", "pkg/backoff", "pkg/listen"}, ours: none,
		because: "it is below everything",
	},
	{
		name: "inventory", of: []string{"pkg/inventory"}, ours: []string{"pkg/gpu", "pkg/hostfs"},
		because: "the inventory declares the driver that it watches",
	},
	{
		name: "layout", of: []string{"pkg/layout"}, ours: layout, named: []string{"os", "net"},
		because: "the layout knows configurations, records and what is published, and nothing of how claims are prepared",
	},
	{
		name: "config-source", of: []string{"pkg/layout/configsource"}, ours: append([]string{"pkg/layout", "pkg/config"}, layout...), named: []string{"net"},
		because: "the node's configuration is read from a file or the API server, before anything is made that a layout or a claim needs",
	},
	{
		name: "health", of: []string{"pkg/health"}, named: []string{"os", "net"},
		ours:    append([]string{"pkg/publish", "pkg/inventory", "pkg/hostfs", "pkg/events", "pkg/backoff"}, nouns...),
		because: "health is found out through ports, and reported",
	},
	{
		name: "protocol", of: []string{"pkg/driver"}, ours: append([]string{"pkg/prepare", "pkg/kube", "pkg/config", "pkg/events"}, phases...),
		because: "the kubelet's protocol knows neither the node's GPUs nor what is advertised",
	},
	{
		name: "diagnostics", of: []string{"pkg/diagnostics"}, named: []string{"google.golang.org/grpc", Module + "/pkg/driver", Module + "/pkg/nvml"},
		because: "metrics show what others report, and ask no driver",
	},
	{
		name: "grpcread", of: []string{"pkg/grpcread"}, ours: none, tests: true, because: "it reads any answer, and knows none",
	},
	{
		name: "podresources", of: []string{"pkg/podresources"}, ours: []string{"pkg/grpcread"},
		because: "the kubelet's list of pods is for the plugin and for the exporter, which prepares nothing",
	},
	{
		name: "hook-programs", of: []string{"pkg/plugin/programs"}, named: []string{"net", "os/exec", "k8s.io/client-go"},
		ours: append([]string{
			"pkg/cdi", "pkg/hook/protocol", "pkg/cdihook", "pkg/config", "pkg/events", "pkg/hostfs", "pkg/kube", "pkg/podresources", "pkg/grpcread",
		}, records...),
		because: "programs are installed and chosen through ports, and know neither the node's GPUs nor how claims are prepared",
	},
	{
		name: "controller", of: []string{"pkg/controller"}, ours: append([]string{"pkg/nodeconfig", "pkg/events"}, nouns...), named: []string{"os", "net"},
		because: "the controller knows configurations and the API server, and no node",
	},
	{
		name: "cli", of: []string{"pkg/cli", "pkg/cli/*", "cmd/kubectl-prism"},
		ours:    append([]string{"pkg/cli", "pkg/cli/*", "pkg/claim", "pkg/pattern", "pkg/profiler/rules", "pkg/profiler/report", "api/profiles/v1alpha1"}, nouns...),
		because: "the user's program asks the API server, and has nothing of a node",
	},
	{
		name: "cli-parts", of: []string{"pkg/cli/download", "pkg/cli/check"}, named: []string{"net", "k8s.io/client-go"},
		because: "files are written, and pods are judged, without a cluster",
	},
	{
		name: "admission", of: []string{"pkg/admission"}, ours: append([]string{"pkg/claim", "pkg/pattern", "pkg/profiler/rules"}, nouns...), named: []string{"os", "k8s.io/client-go"},
		because: "admission asks pkg/claim about what is written, and knows no node and no allocation",
	},
	{
		name: "vendor-libraries", of: product, except: []string{"pkg/nvml", "pkg/nvml/*"}, named: []string{"github.com/NVIDIA"}, tests: true,
		because: "only pkg/nvml speaks the vendor's language",
	},
	{
		name: "client-go", of: product, except: apiSide, named: []string{"k8s.io/client-go"},
		because: "only cmd, plugin, driver, kube, controller, admission, reports and cli see client-go",
	},
	{
		name: "kubelet", of: product, except: []string{"pkg/driver"}, named: []string{"k8s.io/dynamic-resource-allocation/kubeletplugin"},
		because: "only driver talks to the kubelet",
	},
	{
		name: "programs", of: parts, except: []string{"pkg/cdihook", "pkg/nvsmi", "pkg/mpsd", "pkg/profiler/tool"}, named: []string{"os/exec"},
		because: "programs are run by pkg/cdihook, pkg/nvsmi, pkg/mpsd and pkg/profiler/tool alone",
	},
	{
		name: "product", of: product, named: []string{"k8s.io/kubernetes", Module + "/test", Module + "/hack", Module + "/deployments", "testing", "github.com/stretchr/testify"},
		because: "the product draws in neither the server's code nor tests",
	},
	{
		name: "composition", of: parts, named: []string{Module + "/pkg/plugin"}, except: []string{"pkg/plugin", "pkg/plugin/mps", "pkg/plugin/profiler"},
		because: "pkg/plugin puts the parts together, and a part does not know the whole",
	},
	{
		name: "extensions", of: []string{"pkg/plugin/*"},
		named: []string{
			Module + "/pkg/plugin$", Module + "/pkg/inventory", Module + "/pkg/layout", Module + "/pkg/nvml", Module + "/pkg/publish", "os/exec",
		},
		because: "an extension is wired by pkg/plugin, and knows neither what GPUs the node has nor what is advertised of them",
	},
	{
		name: "main", of: parts, named: []string{Module + "/cmd"},
		because: "programs wire packages, and not the other way round",
	},
}

// Breaches returns a sentence for each forbidden import, with the reason of the wall.
func Breaches(packages []Package) []string {
	var breaches []string
	for _, p := range packages {
		for _, w := range walls {
			name := strings.TrimPrefix(p.ImportPath, Module+"/")
			if !matches(w.of, name) || matches(w.except, name) {
				continue
			}
			for _, d := range w.climbed(p) {
				breaches = append(breaches, fmt.Sprintf("%s imports %s, but %s", name, d, w.because))
			}
		}
	}
	return breaches
}

// climbed lists the package's imports that the wall forbids.
func (w wall) climbed(p Package) []string {
	var beyond []string
	for _, d := range p.Deps {
		name, ours := strings.CutPrefix(d, Module+"/")
		if ours && w.ours != nil && !matches(w.ours, name) {
			beyond = append(beyond, d)
		}
	}
	for _, d := range p.Imports {
		if slices.ContainsFunc(w.named, func(pattern string) bool { return below(pattern, d) }) {
			beyond = append(beyond, d)
		}
	}
	for _, d := range p.Deps {
		if slices.ContainsFunc(w.deps, func(pattern string) bool { return below(pattern, d) }) {
			beyond = append(beyond, d)
		}
	}
	return beyond
}

// below reports whether an import path equals the pattern or is below it.
func below(pattern, importPath string) bool {
	if alone, only := strings.CutSuffix(pattern, "$"); only {
		return importPath == alone
	}
	return importPath == pattern || strings.HasPrefix(importPath, pattern+"/")
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
