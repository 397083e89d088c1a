// Package parts builds the programs of a Kubernetes node from their Go modules and keeps them in the user's cache directory, keyed by
// version, so that every clone of the project on a machine shares them.
package parts

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// KubernetesVersion is the default Kubernetes version of a cluster.
const KubernetesVersion = "1.37.2"

// kubernetesVersions are all supported versions of a cluster, one of each minor version and the newest first. All use the same build, flags
// and configuration files.
var kubernetesVersions = []string{KubernetesVersion, "1.36.4", "1.35.4"}

// PreviewVersion is a Kubernetes version before its release, to find its changes early. It requires a newer Go than everything else here,
// and stand-ins for modules that the module proxy lacks.
const PreviewVersion = "1.38.0-beta.0"

// previewGo is the version of Go that PreviewVersion requires, downloaded by the go command.
const previewGo = "1.27.2"

// The other versions; no other place names them.
const (
	etcdVersion       = "3.7.3"
	containerdVersion = "2.4.2"
	runcVersion       = "1.5.2"
	cniVersion        = "1.9.1"
	helmVersion       = "4.3.1"
	toolkitVersion    = "1.20.2"
	// prometheusVersion is Prometheus 3.13, whose Go module uses other numbers.
	prometheusVersion = "0.313.0"
)

// Recipe describes the build of one part: a throw-away Go module that requires Module at Version and builds Packages of it.
type Recipe struct {
	// Name is the part's name and, if Main is set, the name of the program.
	Name string
	// Version is without a leading v.
	Version string
	Module  string
	// Packages are import paths below Module.
	Packages []string
	// Main is the source of the program, if the module contains none to build.
	Main string
	Tags []string
	// Vars are set by the linker: package path and variable, then the value.
	Vars [][2]string
	// Beside are further required modules ("path@version"), though none of their packages is built: packages whose imports have the same
	// versions everywhere are compiled once, for all parts and for the project's own programs.
	Beside []string
	// Staging is a release of Kubernetes: every `k8s.io/… v0.0.0` of its go.mod is the published module of that release. Empty: none.
	Staging string
	// Go is the version of Go that the modules require; empty: the version of the go command in PATH.
	Go string
	// Replace are modules that replace others ("path@version", "path@version"), StandIns the replacements that are created here.
	Replace  [][2]string
	StandIns []StandIn
	// Debian names the packages that the build needs besides Go and a C compiler.
	Debian []string
}

// Table returns the recipes of all parts of a cluster of this Kubernetes version, the longest build first.
func Table(kubernetes string) []Recipe {
	return []Recipe{
		kubernetesRecipe(kubernetes),
		helmRecipe(),
		{
			Name: "containerd", Version: containerdVersion, Module: "github.com/containerd/containerd/v2",
			Packages: []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
			Tags:     []string{"no_btrfs", "no_devmapper", "no_zfs"},
			Vars:     [][2]string{{"github.com/containerd/containerd/v2/version.Version", "v" + containerdVersion}},
		},
		{
			Name: "etcd", Version: etcdVersion, Module: "go.etcd.io/etcd/server/v3", Main: etcdMain,
		},
		{
			Name: "runc", Version: runcVersion, Module: "github.com/opencontainers/runc", Packages: []string{"."},
			Tags: []string{"seccomp"}, Debian: []string{"libseccomp-dev"},
		},
		{
			Name: "cni", Version: cniVersion, Module: "github.com/containernetworking/plugins",
			Packages: []string{"plugins/main/ptp", "plugins/main/loopback", "plugins/ipam/host-local"},
			Vars:     [][2]string{{"github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", "v" + cniVersion}},
		},
		{
			Name: "nvidia-cdi-hook", Version: toolkitVersion, Module: toolkitModule,
			Packages: []string{"cmd/nvidia-cdi-hook"},
			Vars:     [][2]string{{toolkitModule + "/internal/info.version", toolkitVersion}},
		},
	}
}

// Extras returns the recipes of parts that no cluster needs: tests build them by name.
func Extras() []Recipe {
	return []Recipe{{
		// Without the service discovery of clouds, which is most of the code to compile. The discovery of Kubernetes is compiled with the same
		// client as in kubectl and helm.
		Name: "prometheus", Version: prometheusVersion, Module: "github.com/prometheus/prometheus",
		Packages: []string{"cmd/prometheus", "cmd/promtool"}, Tags: []string{"remove_all_sd", "enable_kubernetes_sd", grpcTag},
		Vars:   [][2]string{{"github.com/prometheus/common/version.Version", "3.13.0"}},
		Beside: append(libraries(), kubernetesModule+"@v"+KubernetesVersion, helmModule+"@v"+helmVersion), Staging: KubernetesVersion,
	}, oldToolkit("1.17.8", "nvidia-cdi-hook"), oldToolkit("1.15.0", "nvidia-ctk")}
}

// oldToolkit is a program of an older NVIDIA Container Toolkit, as on existing hosts. The name of the part includes the minor version.
func oldToolkit(version, program string) Recipe {
	return Recipe{
		Name: program + "-" + version[:strings.LastIndex(version, ".")], Version: version, Module: toolkitModule, Packages: []string{"cmd/" + program},
		Vars: [][2]string{{toolkitModule + "/internal/info.version", version}},
	}
}

const toolkitModule = "github.com/NVIDIA/nvidia-container-toolkit"

const etcdMain = `package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
`

const kubernetesModule = "k8s.io/kubernetes"

// grpcTag is a build tag of Kubernetes releases, and of the programs of the project: without gRPC's trace pages the linker drops more.
const grpcTag = "grpcnotrace"

// libraries are modules that the project requires in a newer version than Kubernetes and helm do, among the imports of its Kubernetes
// client: with them that client is compiled once for the cluster and the project.
func libraries() []string {
	return []string{"go.yaml.in/yaml/v3@v3.0.6", "golang.org/x/oauth2@v0.37.0", "golang.org/x/net@v0.62.0"}
}

func kubernetesRecipe(version string) Recipe {
	minor := strings.Split(version, ".")[1]
	vars := [][2]string{}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		vars = append(vars,
			[2]string{pkg + ".gitVersion", "v" + version},
			[2]string{pkg + ".gitMajor", "1"},
			[2]string{pkg + ".gitMinor", minor},
			[2]string{pkg + ".gitTreeState", "clean"})
	}
	recipe := Recipe{
		Name: "kubernetes", Version: version, Module: kubernetesModule, Staging: version, Vars: vars,
		Packages: []string{"cmd/kube-apiserver", "cmd/kube-scheduler", "cmd/kube-controller-manager", "cmd/kubelet", "cmd/kubectl"},
		Tags:     []string{grpcTag},
	}
	switch version {
	case KubernetesVersion:
		recipe.Beside = append(libraries(), helmModule+"@v"+helmVersion)
	case PreviewVersion:
		recipe.Go, recipe.StandIns = previewGo, previewStandIns
		recipe.Replace = [][2]string{{"sigs.k8s.io/structured-merge-diff/v7@v7.0.1", "sigs.k8s.io/structured-merge-diff/v7@v7.0.0"}}
	}
	return recipe
}

const helmModule = "helm.sh/helm/v4"

// helmRecipe: one helm supports every Kubernetes version. It is built with the libraries of the default version.
func helmRecipe() Recipe {
	return Recipe{
		Name: "helm", Version: helmVersion, Module: helmModule, Packages: []string{"cmd/helm"}, Tags: []string{grpcTag},
		Vars:   [][2]string{{helmModule + "/internal/version.version", "v" + helmVersion}},
		Beside: append(libraries(), kubernetesModule+"@v"+KubernetesVersion), Staging: KubernetesVersion,
	}
}

// KubernetesVersions lists the supported versions of a cluster, for people.
func KubernetesVersions() string {
	return strings.Join(kubernetesVersions, ", ") + " or, as a preview, " + PreviewVersion
}

// CheckKubernetes refuses a version that a cluster cannot run.
func CheckKubernetes(version string) error {
	if slices.Contains(kubernetesVersions, version) || version == PreviewVersion {
		return nil
	}
	return fmt.Errorf("a cluster cannot run Kubernetes %q: choose %s", version, KubernetesVersions())
}

// Key names the part's directory in the cache: it changes with every input of the build.
func (r Recipe) Key() string {
	text, err := json.Marshal(r)
	if err != nil { // strings only: cannot happen
		text = fmt.Appendf(nil, "%v", r)
	}
	sum := sha256.Sum256(fmt.Append(text, compilerFlags))
	return fmt.Sprintf("%s-%s-%s", r.Name, r.Version, hex.EncodeToString(sum[:4]))
}

// Programs are the file names of the built programs.
func (r Recipe) Programs() []string {
	if r.Main != "" {
		return []string{r.Name}
	}
	names := make([]string, 0, len(r.Packages))
	for _, pkg := range r.Packages {
		if pkg == "." {
			names = append(names, r.Name)
			continue
		}
		names = append(names, path.Base(pkg))
	}
	return names
}

func (r Recipe) pinned() string { return r.Module + "@v" + r.Version }

// moduleFile renders the go.mod of the throw-away module. staging lists the modules that Kubernetes requires as v0.0.0.
func (r Recipe) moduleFile(staging []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module localcluster.invalid/%s\n\ngo %s\n\n", r.Name, cmp.Or(r.Go, "1.26.0"))
	for _, module := range append([]string{r.pinned()}, r.Beside...) {
		fmt.Fprintf(&b, "require %s\n", strings.Replace(module, "@", " ", 1))
	}
	// Required, and not replaced in every version: with a replacement, the compiled packages name the replaced version, and are not shared.
	version := "v0" + strings.TrimPrefix(r.Staging, "1")
	for _, module := range staging {
		fmt.Fprintf(&b, "require %s %s\nreplace %s v0.0.0 => %s %s\n", module, version, module, module, version)
	}
	for _, pair := range r.Replace {
		fmt.Fprintf(&b, "replace %s => %s\n", strings.Replace(pair[0], "@", " ", 1), strings.Replace(pair[1], "@", " ", 1))
	}
	for _, s := range r.StandIns {
		fmt.Fprintf(&b, "replace %s => ./%s\n", s.Module, s.folder())
	}
	return b.String()
}

// stagingModules reads the modules that a go.mod requires as v0.0.0.
func stagingModules(goMod string) []string {
	var modules []string
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && strings.HasPrefix(fields[0], "k8s.io/") && fields[1] == "v0.0.0" {
			modules = append(modules, fields[0])
		}
	}
	return modules
}

// compilerFlags are also the flags of the project's own programs (hack/tools.sh, deployments/container/programs.sh): with other flags,
// compiled packages could not be shared. Without paths, clones in different folders share them too. The linker would drop debug
// information, which takes a tenth of the compiler's time.
var compilerFlags = []string{"-trimpath", "-gcflags=all=-dwarf=false"}

// buildArguments are the arguments of `go` that build the part into the folder out.
func (r Recipe) buildArguments(out string) []string {
	ldflags := "-s -w"
	for _, v := range r.Vars {
		ldflags += " -X " + v[0] + "=" + v[1]
	}
	args := append([]string{"build", "-mod=mod", "-buildvcs=false"}, compilerFlags...)
	args = append(args, "-ldflags", ldflags)
	if len(r.Tags) > 0 {
		args = append(args, "-tags", strings.Join(r.Tags, ","))
	}
	if r.Main != "" {
		out = path.Join(out, r.Name)
	} else {
		out += "/"
	}
	return append(append(args, "-o", out), r.mains()...)
}

// mains are the packages to build.
func (r Recipe) mains() []string {
	if r.Main != "" {
		return []string{"."}
	}
	packages := make([]string, 0, len(r.Packages))
	for _, pkg := range r.Packages {
		packages = append(packages, path.Join(r.Module, pkg))
	}
	return packages
}
