package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// Host finds and checks programs on the host, usually a *hostfs.FS.
type Host interface {
	// Program returns the first of the paths that is an executable file.
	Program(paths ...string) (path string, found bool)
	FileID(path string) (id hostfs.FileID, found bool)
	// NoExec reports whether the host's mount at a path uses the option noexec.
	NoExec(path string) (bool, error)
	// CheckPrograms returns problems of a directory of programs that users of containers execute.
	CheckPrograms(dir string) error
}

// Images are the paths of the programs in the image of the kubelet plugin. A missing file is not an error, but requests that need it are
// refused.
type Images struct {
	// NVIDIA is NVIDIA's hook program, Own prism-hook.
	NVIDIA, Own string
	// Dir is the directory of the programs that extensions install, Extra are the names of all that they may install.
	Dir   string
	Extra []string
}

// Options are the settings and the ports of Install.
type Options struct {
	Config *config.Plugin
	// Version is the version of this process, and the name of the folder of its programs.
	Version string
	Disk    disk.Files
	Host    Host
	Images  Images
	// Abilities returns the hooks of the host's program at a path. It is called once for each file, and not concurrently.
	Abilities func(ctx context.Context, path string) ([]string, error)
	// Specs are the CDI specs of the node's claims.
	Specs *cdi.Dir
	// Runtime is the node's container runtime; nil: whether it applies CDI specs is not checked.
	Runtime Runtime
}

// Set contains the programs of this process. They are kept until Release, and after that while a spec names them.
type Set struct {
	// Injection detects whether containers receive the devices of their specs.
	Injection *Injection
	nvidia    *nvidiaHook
	own       *ownHook
	folders
	// images is the directory of the programs that extensions install, extra are those that are installed.
	images string
	extra  []*Extra
	// failed is the error of the last sweep; empty: none.
	failed string
}

// ownHook is prism-hook; err is why it is not installed.
type ownHook struct {
	cdi.Installed
	err error
}

// folders are the directories of installed programs.
type folders struct {
	// current contains the programs of all versions since hooks run in user namespaces, former the programs of earlier versions.
	current, former cdi.Hooks
	specs           *cdi.Dir
	version         string
}

// Install installs the programs and chooses NVIDIA's: the program of the setting, of the host, or of our image; none if the image contains
// none. It fails if the image's program is needed and could not be executed on the host.
func Install(ctx context.Context, o Options) (*Set, error) {
	s := &Set{own: &ownHook{}, images: o.Images.Dir, folders: folders{
		current: cdi.Hooks{Disk: o.Disk, Dir: o.Config.ProgramsDir(), Extra: o.Images.Extra, NoExec: o.Host.NoExec},
		former:  cdi.Hooks{Disk: o.Disk, Dir: o.Config.FormerProgramsDir(), Extra: o.Images.Extra},
		specs:   o.Specs, version: o.Version,
	}}
	s.Sweep(ctx)
	setting := o.Config.Driver.CDIHook
	s.nvidia = &nvidiaHook{setting: setting, host: o.Host, ask: o.Abilities, install: installImage(ctx, o, s.current), logger: klog.FromContext(ctx)}
	if err := s.nvidia.begin(ctx); err != nil {
		return nil, err
	}
	s.installOwn(ctx, o)
	s.Injection = &Injection{runtime: o.Runtime, programs: s, dir: o.Config.InjectedDir(), cdiRoot: o.Config.Paths.CDIRoot}
	if !s.nvidia.used() && setting != config.NoCDIHook {
		klog.FromContext(ctx).Info("Without " + cdi.HookName + " containers get no library cache: install it on the host or set --cdi-hook")
	}
	return s, nil
}

// DriverHook returns the program that the driver's hooks name until a spec is written; empty: it supports no hooks.
func (s *Set) DriverHook() string {
	if s.nvidia.used() {
		return cdi.HostHooks[0]
	}
	return ""
}

// checkPlace logs that a program is installed, and problems of its directories.
func checkPlace(ctx context.Context, host Host, path string) {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Installed the hook program", "path", path)
	if err := host.CheckPrograms(filepath.Dir(path)); err != nil {
		logger.Error(err, "CDI hooks may fail in pods with hostUsers false, or may be replaced: correct the directories, "+
			"or set --state-dir (chart value stateDir)", "hook", path)
	}
}

// installOwn installs prism-hook. If that fails, only edits that need the program are refused.
func (s *Set) installOwn(ctx context.Context, o Options) {
	own := s.own
	own.Installed, own.err = s.current.Install(s.version, cdi.Program{Name: cdi.OwnHookName, Image: o.Images.Own})
	switch {
	case own.err == nil:
		checkPlace(ctx, o.Host, own.Path)
		return
	case errors.Is(own.err, fs.ErrNotExist):
		own.err = fmt.Errorf("the image of the kubelet plugin does not contain %s: %w", o.Images.Own, gpu.ErrNotFound)
	case errors.Is(own.err, cdi.ErrNoExec):
		own.err = fmt.Errorf("%w: set --state-dir (chart value stateDir) to a directory whose mount allows programs; state directory now: %s",
			own.err, o.Config.Paths.StateDir)
	}
	klog.FromContext(ctx).Error(own.err, "MPS shares and memory limits are not supported without "+cdi.OwnHookName)
}

// Own returns the path of prism-hook on the host; the error is why it is not installed.
func (s *Set) Own() (string, error) {
	if s.own.err != nil {
		return "", s.own.err
	}
	return s.own.Path, nil
}

// CreateRuntime returns the CDI edit with which the runtime starts prism-hook. If the program is not installed, the path names no file, so
// that the edit is refused when a spec is written.
func (s *Set) CreateRuntime(args ...string) *specs.Hook {
	return cdi.CreateRuntimeHook(s.own.Path, args...)
}

// Exists returns a function that reports whether a path of the host in edits of steps exists; for prism-hook the error explains why not.
func (s *Set) Exists(of func(path string) error) func(path string) error {
	return func(path string) error {
		if s.own.err != nil && path == s.own.Path {
			return fmt.Errorf("%s is not installed: %w", cdi.OwnHookName, s.own.err)
		}
		return of(path)
	}
}

// Edits returns the edits of all containers with the host's current program for each of the driver's hooks. It adds the hook that shows
// that the runtime applies CDI specs, until that is known. It does not change the passed edits.
func (s *Set) Edits(common *specs.ContainerEdits) *specs.ContainerEdits {
	return s.Injection.edits(s.nvidia.edits(common))
}

// Sweep removes programs that no process and no spec uses any more; errors are logged once and retried.
func (s *Set) Sweep(ctx context.Context) {
	removed, err := s.current.Sweep(s.version, s.specs)
	retired, gone, formerErr := s.former.Retire(s.specs)
	logger := klog.FromContext(ctx)
	if removed = append(removed, retired...); len(removed) > 0 || gone {
		logger.V(2).Info("Removed hook programs of other versions", "versions", removed, "formerDirectoryRemoved", gone)
	}
	if err = errors.Join(err, formerErr); err == nil {
		s.failed = ""
	} else if err.Error() != s.failed {
		s.failed = err.Error()
		logger.Error(err, "Removing hook programs of other versions failed and will be retried")
	}
}

// Release lets other processes remove the programs of this process.
func (s *Set) Release() {
	used := []cdi.Installed{s.own.Installed, s.nvidia.own}
	for _, extra := range s.extra {
		used = append(used, extra.installed...)
	}
	for _, program := range used {
		if program.Release != nil {
			program.Release()
		}
	}
}
