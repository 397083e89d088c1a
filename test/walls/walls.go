// Package walls holds who may import whom in the product. It is the same list that the linter has (depguard in
// .golangci.yml), checked over everything that a package draws in, not only over what it names itself.
package walls

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the product's.
const Module = "github.com/prism-gpu/prism"

// Package is what `go list -json` says of a package, tests left out.
type Package struct {
	ImportPath string
	// Imports are those it names itself, Deps all that it draws in.
	Imports, Deps []string
}

// wall keeps some packages from importing others.
type wall struct {
	// of are the packages behind the wall, as patterns of path.Match below the module; except are those of them that are free.
	of, except []string
	// ours are the packages of the product that they may draw in; nil leaves that open.
	ours []string
	// named are import paths that they may not name, with all that is below them; a name that ends in "$" stands for itself
	// alone.
	named []string
	// because is the reason, for the person who ran into the wall.
	because string
}

// none allows no package of the product.
var none = []string{}

var (
	pure   = []string{"pkg/claim", "pkg/publish", "pkg/nodeconfig"}
	steps  = []string{"pkg/mig", "pkg/mps", "pkg/timeslice", "pkg/memlimit", "pkg/profiler"}
	nouns  = []string{"pkg/gpu", "api/*"}
	clocks = []string{
		"os", "time$", "context$", "net", "syscall$", "log", "golang.org/x/sys", "k8s.io/client-go", "k8s.io/klog", "github.com/go-logr",
	}
	apiSide = []string{"cmd/*", "pkg/plugin", "pkg/driver", "pkg/kube", "pkg/controller", "pkg/admission"}
	product = []string{"pkg", "pkg/*", "pkg/*/*", "cmd/*", "api/*"}
)

var walls = []wall{
	{of: []string{"pkg/gpu"}, ours: none, because: "the nouns import nothing of ours, so that every package can speak in them"},
	{of: []string{"api/*"}, ours: none, because: "the API imports nothing of ours: it is the users'"},
	{of: pure, ours: nouns, named: clocks, because: "planning and publishing are pure: same input, same plan"},
	{of: []string{"pkg/checkpoint"}, ours: []string{"pkg/gpu", "pkg/disk"}, because: "records outlive every other package"},
	{
		of: []string{"pkg/cdi"}, ours: []string{"pkg/gpu", "pkg/disk", "pkg/checkpoint"},
		because: "specs are joined from records and from what others found out",
	},
	{
		of: []string{"pkg/ownership"}, ours: []string{"pkg/gpu", "pkg/disk", "pkg/checkpoint"},
		because: "ownership is what records say, and gpu.Excludes decides what excludes what",
	},
	{
		of: []string{"pkg/prepare/gc"}, ours: []string{"pkg/gpu", "pkg/disk", "pkg/checkpoint", "pkg/ownership"},
		because: "what is leaked has no claim, and the collector asks and acts through ports",
	},
	{
		of: []string{"pkg/prepare"}, ours: append([]string{"pkg/claim", "pkg/checkpoint", "pkg/cdi", "pkg/disk", "pkg/ownership", "pkg/prepare/gc"}, nouns...),
		because: "the transaction declares ports and never imports a step or an adapter",
	},
	{
		of: []string{"pkg/reconcile"}, ours: append([]string{"pkg/prepare", "pkg/prepare/gc", "pkg/ownership", "pkg/claim", "pkg/checkpoint", "pkg/cdi", "pkg/disk"}, nouns...),
		named:   []string{"os", "net", "k8s.io/kubelet", "google.golang.org/grpc"},
		because: "the reconciler decides and keeps time, and asks and acts through ports",
	},
	{of: steps, ours: append([]string{"pkg/checkpoint", "pkg/claim", "pkg/cdi", "pkg/disk"}, nouns...), because: "a step declares the ports it needs and knows no other step"},
	{of: []string{"pkg/nvml", "pkg/hostfs", "pkg/nvsmi"}, ours: []string{"pkg/gpu"}, because: "an adapter knows the nouns and no one who uses it"},
	{of: []string{"pkg/disk", "pkg/config", "pkg/logging", "pkg/events"}, ours: none, because: "it is below everything"},
	{of: []string{"pkg/events", "pkg/backoff"}, ours: none, because: "it is below everything"},
	{
		of: []string{"pkg/layout"}, ours: append([]string{
			"pkg/checkpoint", "pkg/nodeconfig", "pkg/publish", "pkg/inventory", "pkg/kube", "pkg/hostfs", "pkg/disk", "pkg/events", "pkg/backoff",
		}, nouns...), named: []string{"os", "net"},
		because: "the layout knows configurations, records and what is published, and nothing of how claims are prepared",
	},
	{
		of: []string{"pkg/health"}, ours: append([]string{"pkg/publish", "pkg/inventory", "pkg/hostfs", "pkg/events", "pkg/backoff"}, nouns...),
		named:   []string{"os", "net"},
		because: "health is found out through ports, and reported",
	},
	{
		of: []string{"pkg/driver"}, ours: append([]string{
			"pkg/prepare", "pkg/prepare/gc", "pkg/ownership", "pkg/claim", "pkg/checkpoint", "pkg/cdi", "pkg/disk", "pkg/kube", "pkg/config",
			"pkg/events",
		}, nouns...),
		because: "the kubelet's protocol knows neither the node's GPUs nor what is advertised",
	},
	{of: []string{"pkg/inventory"}, ours: []string{"pkg/gpu", "pkg/hostfs"}, because: "the inventory declares the driver that it watches"},
	{
		of: []string{"pkg/controller"}, ours: append([]string{"pkg/nodeconfig", "pkg/events"}, nouns...), named: []string{"os", "net"},
		because: "the controller knows configurations and the API server, and no node",
	},
	{
		of: []string{"pkg/admission"}, ours: append([]string{"pkg/claim"}, nouns...), named: []string{"os", "k8s.io/client-go"},
		because: "admission asks pkg/claim about what is written, and knows no node and no allocation",
	},
	{
		of: product, except: []string{"pkg/nvml"}, named: []string{"github.com/NVIDIA"},
		because: "only pkg/nvml speaks the vendor's language",
	},
	{
		of: product, except: apiSide, named: []string{"k8s.io/client-go"},
		because: "only cmd, plugin, driver, kube, controller and admission see client-go",
	},
	{
		of: product, except: []string{"pkg/driver"}, named: []string{"k8s.io/dynamic-resource-allocation/kubeletplugin"},
		because: "only driver talks to the kubelet",
	},
	{of: []string{"pkg/*", "pkg/*/*"}, except: []string{"pkg/nvsmi"}, named: []string{"os/exec"}, because: "programs are run by pkg/nvsmi alone"},
	{
		of: product, named: []string{"k8s.io/kubernetes", Module + "/test", Module + "/hack", Module + "/deployments", "testing", "github.com/stretchr/testify"},
		because: "the product draws in neither the server's code nor tests",
	},
	{
		of: []string{"pkg", "pkg/*", "pkg/*/*", "api/*"}, named: []string{Module + "/pkg/plugin"},
		because: "pkg/plugin puts the parts together, and a part does not know the whole",
	},
	{of: []string{"pkg", "pkg/*", "pkg/*/*", "api/*"}, named: []string{Module + "/cmd"}, because: "programs wire packages, and not the other way round"},
}

// Breaches says in one sentence each which of the packages have climbed a wall, and why it stands.
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

// climbed lists what the package imports beyond the wall.
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
	return beyond
}

// below tells whether an import path is the one named or below it.
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
