package parts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCompilerFlags_ProjectPrograms_Same: with other flags everything would be compiled twice.
func TestCompilerFlags_ProjectPrograms_Same(t *testing.T) {
	for _, script := range []string{"hack/tools.sh", "hack/fetch.sh", "hack/golangci-lint.sh", "deployments/container/programs.sh"} {
		text, err := os.ReadFile(filepath.Join(project, script))
		require.NoError(t, err)
		builds := strings.Count(string(text), "-gcflags")
		assert.NotZero(t, builds, script)
		assert.Equal(t, builds, strings.Count(string(text), strings.Join(compilerFlags, " ")), script)
	}
}

func TestLibraries_ProjectGoMod_SameVersions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, "go.mod"))
	require.NoError(t, err)
	required := strings.Fields(string(text))
	for _, module := range append(libraries(), "k8s.io/client-go@v0"+strings.TrimPrefix(KubernetesVersion, "1")) {
		name, version, _ := strings.Cut(module, "@")
		i := slices.Index(required, name)
		require.GreaterOrEqual(t, i, 0, name)
		assert.Equal(t, version, required[i+1], "%s is compiled once for the project and its cluster while both have one version", name)
	}
}

// TestBeside_KubernetesClient_CompiledOnce compares the packages of the Kubernetes client in the cluster's parts and in the project. It
// downloads the modules that a build of the parts needs too.
func TestBeside_KubernetesClient_CompiledOnce(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	const client = "k8s.io/client-go/kubernetes"
	list := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}"}
	cmd := exec.Command("go", append(list, client)...)
	cmd.Dir = project
	want, err := cmd.Output()
	require.NoError(t, err)
	for _, r := range []Recipe{kubernetesRecipe(KubernetesVersion), helmRecipe(), Extras()[0]} {
		var got []byte
		err := inModule(t.Context(), Cache{Dir: t.TempDir()}, "list", r, func(m buildModule) (err error) {
			// The main module contains no packages: its requirements determine the versions.
			got, err = m.run(t.Context(), append(list, "-mod=mod", client)...)
			return err
		})
		if err != nil && strings.Contains(err.Error(), "the module proxy cannot be reached") {
			t.Skipf("the modules of %s are not all here: %v", r.Name, err)
		}
		require.NoError(t, err, r.Name)
		cluster := slices.Collect(strings.Lines(string(got)))
		require.NotEmpty(t, cluster)
		for _, module := range slices.Compact(slices.Sorted(strings.Lines(string(want)))) {
			if !slices.Contains(cluster, module) {
				assert.Failf(t, "not shared", "the project has %s, %s has not: raise the older one, in go.mod or in libraries()", strings.TrimSpace(module), r.Name)
			}
		}
	}
}
