package nvml

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/nvml/library"
)

// editsDeadlines limits the search for the driver's files, which reads directories, in deadlines of one call.
const editsDeadlines = 4

var (
	// tenantHooks are the hooks that a container may need: they create the links and the linker's cache for the libraries. Other hooks act
	// on the container's own files and are left out.
	tenantHooks = []string{"create-symlinks", "update-ldcache", "disable-device-node-modification"}
	// compatHook is one of the others: it searches the container for compatibility libraries and adds them to the linker's cache.
	compatHook = "enable-cuda-compat"

	// operatorFiles are not for tenants: they control daemons that other tenants share.
	operatorFiles = []string{"nvidia-cuda-mps-", "nvidia-mps", "nvidia-imex"}

	// requiredLibraries are the libraries that CUDA programs and discovery of GPUs need.
	requiredLibraries = []string{"libcuda.so.", "libnvidia-ml.so."}

	mountOptions = []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}
)

// CommonEdits returns the edits for every container with a GPU of this driver: read-only mounts of its libraries, tools, sockets and
// firmware under the host's paths, the environment, and hooks for the linker's cache. Device nodes are not included. The result belongs to
// the caller; it needs no CDI version above 0.6.0.
//
// Without a hook program, it also mounts the links by which programs load the libraries.
func (s *Session) CommonEdits(ctx context.Context) (*specs.ContainerEdits, error) {
	driver, err := s.Driver(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the files of the driver: %w", err)
	}
	c := library.Call{On: library.WholeDriver, Name: "finding the files", Limit: editsDeadlines * s.opts.Deadline}
	edits, err := library.Pass(ctx, s.gate, c, func() (*specs.ContainerEdits, error) { return s.searched(driver.Version) })
	if err != nil {
		return nil, err
	}
	tenant := &specs.ContainerEdits{
		Env:    slices.Clone(edits.Env),
		Mounts: tenantMounts(edits.Mounts),
	}
	if s.opts.HookPath == "" {
		tenant.Mounts = append(tenant.Mounts, s.linkMounts(tenant.Mounts)...)
	} else {
		tenant.Hooks = tenantHooksOf(edits.Hooks, s.opts.CUDACompat)
	}
	// A parent directory sorts before its entries.
	slices.SortFunc(tenant.Mounts, func(a, b *specs.Mount) int { return cmp.Compare(a.ContainerPath, b.ContainerPath) })
	return tenant, nil
}

// searched finds the driver's files, including the required libraries: in the directories that nvcdi knows, or next to the NVML library.
func (s *Session) searched(version string) (*specs.ContainerEdits, error) {
	find := func(dirs ...string) (*specs.ContainerEdits, error) {
		edits, err := s.driverFiles(dirs)
		if err == nil {
			err = requireLibraries(tenantMounts(edits.Mounts), version, s.opts.HostRoot)
		}
		return edits, err
	}
	edits, err := find()
	if err != nil && s.opts.LibraryDir != "" {
		if beside, besideErr := find(s.opts.LibraryDir); besideErr == nil {
			return beside, nil
		}
		inside := path.Join("/", strings.TrimPrefix(s.opts.LibraryDir, strings.TrimSuffix(s.opts.Root, "/")))
		err = fmt.Errorf("%w; also searched %s", err, path.Join(s.opts.HostRoot, inside))
	}
	return edits, err
}

// driverFiles lets nvcdi find the files of the driver, in these directories (paths of this process) or in its own list, and returns them
// with paths of the host.
func (s *Session) driverFiles(dirs []string) (*specs.ContainerEdits, error) {
	disabled := s.opts.DisabledHooks
	if s.opts.HookPath == "" {
		disabled = []string{string(nvcdi.AllHooks)}
	}
	generator, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithLogger(silent{}),
		nvcdi.WithNvmlLib(s.lib),
		nvcdi.WithDriverRoot(s.opts.Root),
		nvcdi.WithNVIDIACDIHookPath(s.opts.HookPath),
		nvcdi.WithDisabledHooks(disabled...), nvcdi.WithLibrarySearchPaths(dirs), nvcdi.WithLdconfigPath(s.opts.Ldconfig),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils, nvcdi.FeatureNoAdditionalGIDsForDeviceNodes),
	)
	if err != nil {
		return nil, err
	}
	common, err := generator.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("below %s: %w", s.opts.HostRoot, err)
	}
	spec := &specs.Spec{ContainerEdits: *common.ContainerEdits}
	toHost := root.New(root.WithRoot(s.opts.Root), root.WithTargetRoot(s.opts.HostRoot), root.WithRelativeTo("host"))
	if err := toHost.Transform(spec); err != nil {
		return nil, fmt.Errorf("translating the files of %s to paths of the host: %w", s.opts.Root, err)
	}
	return &spec.ContainerEdits, nil
}

// tenantMounts copies the mounts that tenants may use, all of them read-only.
func tenantMounts(all []*specs.Mount) []*specs.Mount {
	var mounts []*specs.Mount
	for _, m := range all {
		base := path.Base(m.ContainerPath)
		if slices.ContainsFunc(operatorFiles, func(prefix string) bool { return strings.HasPrefix(base, prefix) }) {
			continue
		}
		mounts = append(mounts, readOnly(m.HostPath, m.ContainerPath, slices.Contains(m.Options, "noexec")))
	}
	return mounts
}

// readOnly returns a read-only mount of one host file.
func readOnly(hostPath, containerPath string, noexec bool) *specs.Mount {
	options := slices.Clone(mountOptions)
	if noexec {
		options = append(options, "noexec")
	}
	return &specs.Mount{HostPath: hostPath, ContainerPath: containerPath, Options: options}
}

// tenantHooksOf copies the hooks a container may need. The first argument is the program's name, the second the hook's.
func tenantHooksOf(all []*specs.Hook, compat bool) []*specs.Hook {
	var hooks []*specs.Hook
	for _, h := range all {
		if len(h.Args) > 1 && (slices.Contains(tenantHooks, h.Args[1]) || compat && h.Args[1] == compatHook) {
			hooks = append(hooks, &specs.Hook{
				HookName: h.HookName, Path: h.Path, Args: slices.Clone(h.Args), Env: slices.Clone(h.Env), Timeout: h.Timeout,
			})
		}
	}
	return hooks
}

// requireLibraries refuses an installation without the required libraries: missing files are silently not mounted, and no program in a
// container could use its GPU.
func requireLibraries(mounts []*specs.Mount, version, hostRoot string) error {
	for _, prefix := range requiredLibraries {
		name := prefix + version
		if !slices.ContainsFunc(mounts, func(m *specs.Mount) bool { return path.Base(m.HostPath) == name }) {
			return fmt.Errorf("%s is not in the library directories of %s: %w; reinstall the driver's user-space libraries", name, hostRoot, gpu.ErrNotFound)
		}
	}
	return nil
}

// silent is nvcdi's logger. Its warnings are either checked here or harmless.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}
