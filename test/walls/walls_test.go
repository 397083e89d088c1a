package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// list returns the packages of the module from go list.
func list(t *testing.T) []Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,Imports,Deps", Module+"/...")
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	require.NoError(t, command.Run(), problems.String())
	var packages []Package
	for decoder := json.NewDecoder(&out); ; {
		var p Package
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

func TestRules_Product_HasNoBreach(t *testing.T) {
	t.Parallel()
	for _, breach := range Breaches(list(t)) {
		t.Error(breach)
	}
}

// TestRules_Patterns_MatchPackages: a renamed package would lose its rule.
func TestRules_Patterns_MatchPackages(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, r := range rules {
		for _, pattern := range slices.Concat(r.of, r.except, r.ours) {
			assert.True(t, slices.ContainsFunc(packages, func(p Package) bool {
				name, _ := p.name()
				return matches([]string{pattern}, name)
			}), "no package is %s", pattern)
		}
	}
}

// unlimited may import every package of Prism that the other rules allow: the plugin's own folder, and the extensions of claims.
var unlimited = []string{
	"pkg", "pkg/plugin", "pkg/plugin/claimmetrics", "pkg/plugin/diagnostics", "pkg/plugin/extension", "pkg/plugin/extradevices", "pkg/plugin/mps",
	"pkg/plugin/profiler/...", "pkg/plugin/programs", "cmd/prism-kubelet-plugin",
}

// TestRules_Package_HasOne: a new package gets a rule about the packages of Prism that it may import.
func TestRules_Package_HasOne(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		name, _ := p.name()
		if !matches(product, name) || matches(unlimited, name) {
			continue
		}
		assert.True(t, slices.ContainsFunc(rules, func(r rule) bool { return r.ours != nil && r.applies(name) }), "no rule limits what %s may import", name)
	}
}

// TestBreaches_OfEachRule_Found: each rule forbids its imports, directly and indirectly.
func TestBreaches_OfEachRule_Found(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of            string
		imports, deps []string
		want          string
	}{
		{"pkg/gpu", nil, []string{Module + "/pkg/pattern"}, "every package can use it only if it imports no other package of Prism"},
		{"api/v1alpha1", nil, []string{Module + "/pkg/gpu"}, "every package can use it only if it imports no other package of Prism"},
		{"pkg/claim", []string{"os/user"}, nil, "it computes: the same input has the same result, without files, network, log or context"},
		{"pkg/claim", nil, []string{Module + "/pkg/disk"}, "it computes: the same input has the same result, without files, network, log or context"},
		{"pkg/plugin/publish", []string{"time"}, nil, "a plan does not depend on the time at which it is made"},
		{"pkg/checkpoint", nil, []string{Module + "/pkg/claim"}, "records outlive every other package: a claim is undone by its record alone"},
		{"pkg/plugin/prepare", nil, []string{Module + "/pkg/plugin/mig"}, "the transaction and the reconciler decide, and act through ports: they import neither a step nor an adapter"},
		{"pkg/plugin/reconcile", nil, []string{Module + "/pkg/plugin/kube"}, "the transaction and the reconciler decide, and act through ports: they import neither a step nor an adapter"},
		{"pkg/plugin/mig", nil, []string{Module + "/pkg/plugin/timeslice"}, "a step declares the ports that it needs, and does not know other steps"},
		{"pkg/plugin/mps", nil, []string{Module + "/pkg/plugin/layout/configsource"}, "work for a claim depends neither on the GPUs of the node nor on published devices"},
		{"pkg/plugin/profiler/store", nil, []string{Module + "/pkg/plugin/publish"}, "work for a claim depends neither on the GPUs of the node nor on published devices"},
		{"pkg/nvml", nil, []string{Module + "/pkg/plugin/inventory"}, "an adapter does not know its users"},
		{"pkg/plugin/layout", nil, []string{Module + "/pkg/plugin/prepare"}, "published devices follow from configuration, hardware and records, and not from the preparation of claims"},
		{"pkg/plugin/driver", nil, []string{Module + "/pkg/plugin/layout"}, "the kubelet's protocol depends neither on the GPUs of the node nor on published devices"},
		{"pkg/exporter", nil, []string{"k8s.io/client-go/rest"}, "the exporter has no credentials for the API server, and prepares nothing"},
		{"cmd/prism-exporter", nil, []string{Module + "/pkg/nvml"}, "the exporter has no credentials for the API server, and prepares nothing"},
		{"pkg/controller/classes", nil, []string{Module + "/pkg/plugin/kube"}, "the controller knows configurations and the API server, and no node"},
		{"pkg/cli/profile/check", nil, []string{Module + "/pkg/hostfs"}, "the user's program asks the API server, and needs nothing of a node"},
		{"pkg/mpsd", nil, []string{"k8s.io/client-go/rest"}, "a program that works for the plugin knows neither claims nor the API server"},
		{"cmd/prism-tool", nil, []string{Module + "/pkg/claim"}, "a program that works for the plugin knows neither claims nor the API server"},
		{"cmd/prism-hook", []string{"net/http"}, nil, "the runtime starts the hook for every container that needs it: it is small and starts quickly"},
		{"pkg/profiler/rules", []string{"net/http"}, nil, "nodes, the controller and kubectl prism use it alike"},
		{"pkg/plugin/cri", []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}, nil, "only pkg/nvml and pkg/exporter/sampling use the vendor's libraries"},
		{"pkg/hostfs", []string{"k8s.io/client-go/kubernetes"}, nil, "only the controller, kubectl prism and four packages of the plugin ask the API server"},
		{"pkg/plugin/kube", []string{"k8s.io/dynamic-resource-allocation/kubeletplugin"}, nil, "only pkg/plugin/driver serves the kubelet"},
		{"pkg/plugin/driver", []string{"os/exec"}, nil, "only pkg/plugin/cdihook, pkg/plugin/nvsmi, pkg/mpsd and pkg/profiler/tool run programs"},
		{"pkg/plugin/driver", []string{Module + "/pkg/plugin"}, nil, "programs put packages together, and no package imports a program"},
		{"pkg/plugin", []string{Module + "/cmd/prism-kubelet-plugin"}, nil, "programs put packages together, and no package imports a program"},
		{"cmd/prism-kubelet-plugin", []string{Module + "/test/simgpu/model"}, nil, "the product contains neither tests nor code of the API server"},
	} {
		forbidden := append(slices.Clone(c.imports), c.deps...)[0]
		assert.Equal(t, []string{c.of + " imports " + forbidden + ", but " + c.want}, Breaches([]Package{{ImportPath: Module + "/" + c.of, Imports: c.imports, Deps: c.deps}}))
	}
	for _, r := range rules {
		assert.True(t, r.ours != nil || len(r.not)+len(r.never) > 0, "the rule about %v forbids nothing", r.of)
	}
	assert.Empty(t, Breaches([]Package{
		{ImportPath: Module + "/pkg/plugin/publish", Imports: []string{"timeless", "k8s.io/api/resource/v1"}, Deps: []string{"time", Module + "/pkg/gpu"}},
		{ImportPath: Module + "/cmd/prism-kubelet-plugin", Imports: []string{Module + "/pkg/plugin"}},
		{ImportPath: Module + "/pkg/plugin/layout", Deps: []string{Module + "/pkg/plugin/layout/configsource"}},
		{ImportPath: Module + "/test/simgpu/port", Imports: []string{"os/exec", "github.com/NVIDIA/go-nvml/pkg/nvml"}},
	}))
}
