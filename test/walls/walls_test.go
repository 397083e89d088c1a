package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// list returns the packages of the module from go list.
func list(t *testing.T) []Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", Module+"/...")
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

func TestWalls_Product_HasNoBreach(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, breach := range Breaches(packages) {
		t.Error(breach)
	}
	for _, must := range []string{"pkg/gpu", "pkg/claim", "pkg/prepare", "pkg/reconcile", "pkg/nvml", "pkg/plugin", "cmd/prism-kubelet-plugin", "cmd/prism-controller", "cmd/prism-exporter", "pkg/exporter", "pkg/controller", "api/v1alpha1"} {
		found := false
		for _, p := range packages {
			found = found || p.ImportPath == Module+"/"+must
		}
		assert.True(t, found, "%s was not checked", must)
	}
}

// TestWalls_Patterns_MatchPackages: a renamed package would leave its wall. Steps may come later.
func TestWalls_Patterns_MatchPackages(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, w := range walls {
		for _, pattern := range append(append([]string{}, w.of...), w.except...) {
			found := slices.Contains(steps, pattern)
			for _, p := range packages {
				found = found || matches([]string{pattern}, strings.TrimPrefix(p.ImportPath, Module+"/"))
			}
			assert.True(t, found, "no package is %s", pattern)
		}
	}
}

func TestBreaches_OfEachWall_Found(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Package{
		"pkg/gpu imports " + Module + "/pkg/disk, but the nouns import nothing of ours, so that every package can speak in them": {
			ImportPath: Module + "/pkg/gpu", Deps: []string{"fmt", Module + "/pkg/disk"},
		},
		"api/v1alpha1 imports " + Module + "/pkg/gpu, but the API imports nothing of ours: it is the users'": {
			ImportPath: Module + "/api/v1alpha1", Deps: []string{Module + "/pkg/gpu"},
		},
		"pkg/claim imports os/user, but planning and publishing are pure: same input, same plan": {
			ImportPath: Module + "/pkg/claim", Imports: []string{"os/user"}, Deps: []string{"os/user", Module + "/pkg/gpu", Module + "/api/v1alpha1"},
		},
		"pkg/publish imports time, but planning and publishing are pure: same input, same plan": {
			ImportPath: Module + "/pkg/publish", Imports: []string{"time"},
		},
		"pkg/prepare imports " + Module + "/pkg/mig, but the transaction declares ports and never imports a step or an adapter": {
			ImportPath: Module + "/pkg/prepare", Deps: []string{Module + "/pkg/claim", Module + "/pkg/mig"},
		},
		"pkg/reconcile imports " + Module + "/pkg/kube, but the reconciler decides and keeps time, and asks and acts through ports": {
			ImportPath: Module + "/pkg/reconcile", Deps: []string{Module + "/pkg/prepare", Module + "/pkg/kube"},
		},
		"pkg/mig imports " + Module + "/pkg/nvml, but a step declares the ports it needs and knows no other step": {
			ImportPath: Module + "/pkg/mig", Deps: []string{Module + "/pkg/nvml", Module + "/pkg/checkpoint"},
		},
		"pkg/nvml imports " + Module + "/pkg/inventory, but an adapter depends on the model and not on its users": {
			ImportPath: Module + "/pkg/nvml", Imports: []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}, Deps: []string{Module + "/pkg/inventory"},
		},
		"pkg/inventory imports github.com/NVIDIA/go-nvml/pkg/nvml, but only pkg/nvml speaks the vendor's language": {
			ImportPath: Module + "/pkg/inventory", Imports: []string{"github.com/NVIDIA/go-nvml/pkg/nvml"},
		},
		"pkg/checkpoint imports k8s.io/client-go/kubernetes, but only cmd, plugin, driver, kube, controller, admission, reports and cli see client-go": {
			ImportPath: Module + "/pkg/checkpoint", Imports: []string{"k8s.io/client-go/kubernetes"},
		},
		"pkg/kube imports k8s.io/dynamic-resource-allocation/kubeletplugin, but only driver talks to the kubelet": {
			ImportPath: Module + "/pkg/kube", Imports: []string{"k8s.io/client-go/rest", "k8s.io/dynamic-resource-allocation/kubeletplugin"},
		},
		"pkg/controller imports " + Module + "/pkg/kube, but the controller knows configurations and the API server, and no node": {
			ImportPath: Module + "/pkg/controller", Deps: []string{Module + "/pkg/nodeconfig", Module + "/pkg/gpu", Module + "/pkg/kube"},
		},
		"pkg/exporter imports k8s.io/client-go/rest, but the exporter has no API credentials and prepares nothing": {
			ImportPath: Module + "/pkg/exporter", Imports: []string{Module + "/pkg/allocation"}, Deps: []string{Module + "/pkg/allocation", "k8s.io/client-go/rest"},
		},
		"cmd/prism-exporter imports " + Module + "/pkg/nvml, but the exporter has no API credentials and prepares nothing": {
			ImportPath: Module + "/cmd/prism-exporter", Deps: []string{Module + "/pkg/nvml", Module + "/pkg/nvml/sampling"},
		},
		"pkg/driver imports " + Module + "/pkg/plugin, but pkg/plugin puts the parts together, and a part does not know the whole": {
			ImportPath: Module + "/pkg/driver", Imports: []string{Module + "/pkg/plugin"},
		},
		"pkg/driver imports os/exec, but programs are run by pkg/cdihook, pkg/nvsmi, pkg/mpsd and pkg/profiler/tool alone": {
			ImportPath: Module + "/pkg/driver", Imports: []string{"os/exec"},
		},
		"cmd/prism-kubelet-plugin imports " + Module + "/test/simgpu/model, but the product draws in neither the server's code nor tests": {
			ImportPath: Module + "/cmd/prism-kubelet-plugin", Imports: []string{Module + "/test/simgpu/model"},
		},
		"pkg/driver imports " + Module + "/cmd/prism-kubelet-plugin, but programs wire packages, and not the other way round": {
			ImportPath: Module + "/pkg/driver", Imports: []string{Module + "/cmd/prism-kubelet-plugin"},
		},
	} {
		assert.Equal(t, []string{want}, Breaches([]Package{p}))
	}
	assert.Empty(t, Breaches([]Package{
		{ImportPath: Module + "/pkg/publish", Imports: []string{"timeless", "k8s.io/api/resource/v1"}, Deps: []string{"time", Module + "/pkg/gpu"}},
		{ImportPath: Module + "/cmd/prism-kubelet-plugin", Imports: []string{Module + "/pkg/plugin"}},
		{ImportPath: Module + "/test/simgpu/port", Imports: []string{"os/exec", "github.com/NVIDIA/go-nvml/pkg/nvml"}},
	}))
}

func TestDepguard_Configuration_IsGenerated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.golangci.yml")
	require.NoError(t, err)
	generated, err := Depguard(string(text))
	require.NoError(t, err)
	assert.Equal(t, string(text), generated, "the linter's rules differ from the table: run go generate ./test/walls")
	_, err = Depguard("linters:\n")
	assert.ErrorContains(t, err, "between which the rules stand")
}

func TestDepguard_Names_AreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, w := range walls {
		assert.NotEmpty(t, w.name, "%v", w.of)
		assert.False(t, seen[w.name], "there are two walls %s", w.name)
		assert.True(t, w.ours != nil || len(w.named)+len(w.deps) > 0, "wall %s keeps nothing out", w.name)
		seen[w.name] = true
	}
}
