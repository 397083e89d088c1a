package parts

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func recipe(t *testing.T, name string) Recipe {
	t.Helper()
	for _, r := range Table("1.36.4") {
		if r.Name == name {
			return r
		}
	}
	require.Fail(t, "no recipe", name)
	return Recipe{}
}

func TestModuleFile_Kubernetes_StagingOfTheRelease(t *testing.T) {
	goMod := "module k8s.io/kubernetes\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/klog/v2 v2.140.0\n\tk8s.io/kubelet v0.0.0 // indirect\n)\n"
	staging := stagingModules(goMod)
	assert.Equal(t, []string{"k8s.io/api", "k8s.io/kubelet"}, staging)
	assert.Equal(t, `module localcluster.invalid/kubernetes

go 1.26.0

require k8s.io/kubernetes v1.36.4
require k8s.io/api v0.36.4
replace k8s.io/api v0.0.0 => k8s.io/api v0.36.4
require k8s.io/kubelet v0.36.4
replace k8s.io/kubelet v0.0.0 => k8s.io/kubelet v0.36.4
`, recipe(t, "kubernetes").moduleFile(staging))
}

func TestModuleFile_Helm_LibrariesOfKubernetes(t *testing.T) {
	requires := func(version string) (cluster, helm string) {
		table := Table(version)
		require.Equal(t, "helm", table[1].Name)
		_, cluster, _ = strings.Cut(table[0].moduleFile([]string{"k8s.io/api"}), "\n")
		_, helm, _ = strings.Cut(table[1].moduleFile([]string{"k8s.io/api"}), "\n")
		return cluster, helm
	}
	cluster, helm := requires(KubernetesVersion)
	assert.ElementsMatch(t, strings.Split(cluster, "\n"), strings.Split(helm, "\n"))
	cluster, _ = requires("1.36.4")
	assert.NotContains(t, cluster, "helm", "helm would change the libraries of another Kubernetes")
}

func TestTable_KubernetesVersions_OtherPartsSame(t *testing.T) {
	keys := map[string]bool{}
	others := Table(KubernetesVersion)[1:]
	all := append(slices.Clone(kubernetesVersions), PreviewVersion)
	for _, version := range all {
		table := Table(version)
		assert.Equal(t, others, table[1:], "parts are built once for all versions")
		assert.Regexp(t, `^kubernetes-`+version+`-`, table[0].Key())
		keys[table[0].Key()] = true
	}
	assert.Len(t, keys, len(all), "each version has a place of its own in the cache")
}

func TestBuildArguments_EachPart_AsExpected(t *testing.T) {
	common := []string{"build", "-mod=mod", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags"}
	assert.Equal(t, append(slices.Clone(common), "-s -w", "-tags", "seccomp", "-o", "out/", "github.com/opencontainers/runc"),
		recipe(t, "runc").buildArguments("out"))
	assert.Equal(t, append(slices.Clone(common), "-s -w", "-o", "out/etcd", "."), recipe(t, "etcd").buildArguments("out"))
	assert.Contains(t, recipe(t, "kubernetes").buildArguments("out")[6], "-X k8s.io/component-base/version.gitMinor=36")
	assert.Equal(t, []string{"list", "-mod=mod", "-deps", "-f", "{{/* none */}}", "-tags", "seccomp", "github.com/opencontainers/runc"}, recipe(t, "runc").listArguments())
}

func TestTable_Programs_Listed(t *testing.T) {
	var all []string
	for _, r := range Table(KubernetesVersion) {
		all = append(all, r.Programs()...)
	}
	assert.ElementsMatch(t, []string{
		"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl", "helm", "containerd",
		"containerd-shim-runc-v2", "ctr", "etcd", "runc", "ptp", "loopback", "host-local", "nvidia-cdi-hook",
	}, all)
}

// TestExtras_Cluster_HasNone: parts for tests are not built for a cluster.
func TestExtras_Cluster_HasNone(t *testing.T) {
	names := []string{}
	for _, extra := range Extras() {
		names = append(names, extra.Name)
		for _, r := range Table(KubernetesVersion) {
			assert.NotEqual(t, extra.Name, r.Name)
		}
	}
	assert.Equal(t, []string{"prometheus", "nvidia-cdi-hook-1.17", "nvidia-ctk-1.15"}, names)
	assert.Contains(t, Extras()[0].buildArguments("out"), "remove_all_sd,enable_kubernetes_sd,grpcnotrace")
	assert.Equal(t, []string{"nvidia-cdi-hook"}, Extras()[1].Programs())
}

func TestKey_RecipeChanges_Differs(t *testing.T) {
	runc := recipe(t, "runc")
	other := runc
	other.Tags = nil
	assert.NotEqual(t, runc.Key(), other.Key())
	assert.Equal(t, runc.Key(), recipe(t, "runc").Key())
	assert.Regexp(t, `^runc-`+runcVersion+`-[0-9a-f]{8}$`, runc.Key())
}

func TestCheckKubernetes_UnknownVersion_Refused(t *testing.T) {
	for _, version := range []string{"1.37.2", "1.36.4", "1.35.4", "1.38.0-beta.0"} {
		require.NoError(t, CheckKubernetes(version))
	}
	for _, version := range []string{"", "1.37", "v1.37.2", "1.34.0", "1.36.1", "1.38.0"} {
		assert.EqualError(t, CheckKubernetes(version), `a cluster cannot run Kubernetes "`+version+`": choose 1.37.2, 1.36.4, 1.35.4 or, as a preview, 1.38.0-beta.0`)
	}
}

func TestExplain_BuildOutput_CauseNamed(t *testing.T) {
	cause := errors.New("exit status 1")
	for output, want := range map[string]string{
		"write /x: no space left on device":                                                  "the disk is full",
		"x: dial tcp: lookup y: no such host":                                                "the module proxy cannot be reached",
		"x@v9: reading x: 404 Not Found":                                                     "this version is not published",
		"a\nb.go:1: undefined: c\n":                                                          "exit status 1: b.go:1: undefined: c (see log)",
		"module lookup disabled by GOPROXY=off":                                              "the module proxy cannot be reached",
		"reading x: 403 Forbidden\n\tserver response: This module version is not available.": "this version is not published",
		"reading x: unknown revision v1.37.2\n\tserver response: none":                       "this version is not published",
	} {
		assert.ErrorContains(t, explain(cause, output, "log"), want, output)
	}
}

func TestFill_Fails_NoEntry(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	entry := filepath.Join(cache.Dir, "parts", "x")
	err := cache.Fill(entry, func(string) error { return errors.New("broken") })
	require.EqualError(t, err, "broken")
	assert.False(t, cache.Has(entry))
	left, err := filepath.Glob(filepath.Join(cache.Dir, "parts", ".new-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "a failed build leaves nothing")

	built := 0
	build := func(string) error { built++; return nil }
	require.NoError(t, cache.Fill(entry, build))
	require.NoError(t, cache.Fill(entry, build))
	assert.Equal(t, 1, built)
}

func TestCheckSpace_DiskTooSmall_VariableNamed(t *testing.T) {
	require.NoError(t, CheckSpace(t.TempDir(), 1, "X"))
	assert.ErrorContains(t, CheckSpace(t.TempDir(), 1<<62, "XDG_CACHE_HOME"), "set XDG_CACHE_HOME to another disk")
}
