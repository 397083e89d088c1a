package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/reconcile"
)

// hookPrograms is where hook programs are, and which of them this process uses.
type hookPrograms struct {
	// nvidia is NVIDIA's.
	nvidia *nvidiaHook
	// own is prism-hook, ownErr why it is not in place.
	own    cdi.Installed
	ownErr error
	// injected finds out whether containers get what their specs say.
	injected *injection
	// profiler is what containers of profiled claims get beside prism-hook.
	profiler profilerPrograms
	programFolders
	// failed is what kept the last sweep from its end; "" when nothing did.
	failed string
}

// programFolders are where programs are installed.
type programFolders struct {
	// current holds the programs of all versions since hooks run in user namespaces, former those of earlier ones.
	current, former cdi.Hooks
	specs           *cdi.Dir
	version         string
}

// profilerPrograms are what was installed for containers of profiled claims, or why that is not in place.
type profilerPrograms struct {
	installed []cdi.Installed
	err       error
}

// findHook finds NVIDIA's hook program: the one that was named, the host's, or ours, which it installs; none where the image has none.
// It fails where ours is needed and could not be executed on the host.
func findHook(ctx context.Context, cfg *config.Plugin, a Adapters, specs *cdi.Dir) (*hookPrograms, error) {
	p := &hookPrograms{programFolders: programFolders{
		current: cdi.Hooks{Disk: a.Disk, Dir: cfg.ProgramsDir(), NoExec: a.Host.NoExec},
		former:  cdi.Hooks{Disk: a.Disk, Dir: cfg.FormerProgramsDir()},
		specs:   specs, version: a.Version,
	}}
	p.sweep(ctx)
	p.nvidia = &nvidiaHook{
		setting: cfg.Driver.CDIHook, host: a.Host, ask: a.HookAbilities, install: installImage(ctx, cfg, a, p.current), logger: klog.FromContext(ctx),
	}
	if err := p.nvidia.begin(ctx); err != nil {
		return nil, err
	}
	p.installOwn(ctx, cfg, a)
	p.injected = &injection{runtime: a.Runtime, hook: p, dir: cfg.InjectedDir(), cdiRoot: cfg.Paths.CDIRoot}
	if cfg.Profiler.Enabled {
		p.installProfiler(ctx, a)
	}
	if !p.nvidia.used() && cfg.Driver.CDIHook != config.NoCDIHook {
		klog.FromContext(ctx).Info("Without " + cdi.HookName + " containers get no library cache: install it on the host or set --cdi-hook")
	}
	return p, nil
}

// name is the program that the driver's hooks name until a spec is made; empty: it has none.
func (p *hookPrograms) name() string {
	if p.nvidia.used() {
		return cdi.HostHooks[0]
	}
	return ""
}

// checkPlace logs that a program is installed, and what is wrong with the directories that it is in.
func checkPlace(ctx context.Context, host Host, path string) {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Installed the hook program", "path", path)
	if err := host.CheckPrograms(filepath.Dir(path)); err != nil {
		logger.Error(err, "CDI hooks may fail in pods with hostUsers false, or may be replaced: correct the directories, "+
			"or set --state-dir (chart value stateDir)", "hook", path)
	}
}

// installOwn installs prism-hook. Where that fails only what needs the program is refused.
func (p *hookPrograms) installOwn(ctx context.Context, cfg *config.Plugin, a Adapters) {
	p.own, p.ownErr = p.current.Install(p.version, cdi.Program{Name: cdi.OwnHookName, Image: a.OwnHookImage})
	switch {
	case p.ownErr == nil:
		checkPlace(ctx, a.Host, p.own.Path)
		return
	case errors.Is(p.ownErr, fs.ErrNotExist):
		p.ownErr = fmt.Errorf("the image of the kubelet plugin has no %s: %w", a.OwnHookImage, gpu.ErrNotFound)
	case errors.Is(p.ownErr, cdi.ErrNoExec):
		p.ownErr = fmt.Errorf("%w: set --state-dir (chart value stateDir) to a directory whose mount allows programs; state directory now: %s",
			p.ownErr, cfg.Paths.StateDir)
	}
	klog.FromContext(ctx).Error(p.ownErr, "MPS shares and memory limits are not supported without "+cdi.OwnHookName)
}

// installProfiler installs what containers of profiled claims get. Where that fails only profiles are refused.
func (p *hookPrograms) installProfiler(ctx context.Context, a Adapters) {
	p.profiler.err = p.ownErr
	for _, name := range []string{cdi.ProfilerLibrary, cdi.ProfilerRun} {
		if p.profiler.err != nil {
			break
		}
		image := filepath.Join(a.ProfilerImage, name)
		installed, err := p.current.Install(p.version, cdi.Program{Name: name, Image: image})
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the image of the kubelet plugin has no %s: %w", image, gpu.ErrNotFound)
		}
		if err == nil {
			p.profiler.installed = append(p.profiler.installed, installed)
		}
		p.profiler.err = err
	}
	if p.profiler.err != nil {
		klog.FromContext(ctx).Error(p.profiler.err, "Processes are not profiled without the profiler's programs")
	}
}

// createContainer is the CDI edit that has the runtime start prism-hook in the container's mount namespace.
func (p *hookPrograms) createContainer(args ...string) *specs.Hook {
	return cdi.CreateContainerHook(p.own.Path, args...)
}

// Own returns the path of prism-hook on the host; the error says why it is not in place.
func (p *hookPrograms) Own() (string, error) {
	if p.ownErr != nil {
		return "", p.ownErr
	}
	return p.own.Path, nil
}

// createRuntime is the CDI edit that has the runtime start prism-hook. Where the program is not in place the path names no file, so
// that the edit is refused when a spec is made.
func (p *hookPrograms) createRuntime(args ...string) *specs.Hook {
	return cdi.CreateRuntimeHook(p.own.Path, args...)
}

// exists is what reports whether something of the host that steps add exists, and says of prism-hook why it does not.
func (p *hookPrograms) exists(of func(path string) error) func(path string) error {
	return func(path string) error {
		if p.ownErr != nil && path == p.own.Path {
			return fmt.Errorf("%s is not installed: %w", cdi.OwnHookName, p.ownErr)
		}
		return of(path)
	}
}

// run removes programs when the last process and the last spec that need them are gone.
func (p *hookPrograms) run(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, p.sweep, reconcile.Period, sweepJitter, true)
	return nil
}

// sweepJitter is the largest part of the period by which the next sweep is late.
const sweepJitter = 0.2

// sweep removes programs that nothing needs; what fails is logged once and tried again.
func (p *hookPrograms) sweep(ctx context.Context) {
	removed, err := p.current.Sweep(p.version, p.specs)
	retired, gone, formerErr := p.former.Retire(p.specs)
	logger := klog.FromContext(ctx)
	if removed = append(removed, retired...); len(removed) > 0 || gone {
		logger.V(2).Info("Removed hook programs of other versions", "versions", removed, "formerDirectoryRemoved", gone)
	}
	if err = errors.Join(err, formerErr); err == nil {
		p.failed = ""
	} else if err.Error() != p.failed {
		p.failed = err.Error()
		logger.Error(err, "Hook programs of other versions stay for now")
	}
}

// release lets other processes remove the programs that this one has used.
func (p *hookPrograms) release() {
	all := append([]cdi.Installed{p.own}, p.profiler.installed...)
	if p.nvidia != nil {
		all = append(all, p.nvidia.own)
	}
	for _, used := range all {
		if used.Release != nil {
			used.Release()
		}
	}
}
