package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/reconcile"
)

// hookPrograms is where hook programs are, and which of them this process uses.
type hookPrograms struct {
	cdi.Installed
	// current holds the programs of all versions since hooks run in user namespaces, former those of earlier ones.
	current, former cdi.Hooks
	specs           *cdi.Dir
	version         string
	// failed is what kept the last sweep from its end; "" when nothing did.
	failed string
}

// findHook finds the hook program: the one that was named, the host's, or ours, which it installs; none where the image has none.
// It fails where ours could not be executed on the host.
func findHook(ctx context.Context, cfg *config.Plugin, a Adapters, specs *cdi.Dir) (*hookPrograms, error) {
	p := &hookPrograms{
		current: cdi.Hooks{Disk: a.Disk, Dir: cfg.ProgramsDir(), Image: a.HookImage, NoExec: a.Host.NoExec},
		former:  cdi.Hooks{Disk: a.Disk, Dir: cfg.FormerProgramsDir(), Image: a.HookImage},
		specs:   specs, version: a.Version,
	}
	p.sweep(ctx)
	if err := p.choose(ctx, cfg, a.Host); err != nil {
		return nil, err
	}
	if p.Path == "" && cfg.Driver.CDIHook != config.NoCDIHook {
		klog.FromContext(ctx).Info("Without " + cdi.HookName + " containers get no library cache: install it on the host or set --cdi-hook")
	}
	return p, nil
}

func (p *hookPrograms) choose(ctx context.Context, cfg *config.Plugin, host Host) (err error) {
	if cfg.Driver.CDIHook == config.NoCDIHook {
		return nil
	}
	if cfg.Driver.CDIHook != "" {
		if _, ok := host.Program(cfg.Driver.CDIHook); !ok {
			return fmt.Errorf("--cdi-hook: there is no executable %s on the host", cfg.Driver.CDIHook)
		}
		p.Path = cfg.Driver.CDIHook
		return nil
	}
	if path, ok := host.Program(cdi.HostHooks...); ok {
		p.Path = path
		return nil
	}
	p.Installed, err = p.current.Install(p.version)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Installed = cdi.Installed{}
		return nil
	case errors.Is(err, cdi.ErrNoExec):
		return fmt.Errorf("%w: set --state-dir (chart value stateDir) to a directory whose mount allows programs, or install %s on the host; "+
			"state directory now: %s", err, cdi.HookName, cfg.Paths.StateDir)
	}
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Installed the hook program", "path", p.Path)
	if err := host.CheckPrograms(filepath.Dir(p.Path)); err != nil {
		logger.Error(err, "CDI hooks may fail in pods with hostUsers false, or may be replaced: correct the directories, "+
			"or set --state-dir (chart value stateDir)", "hook", p.Path)
	}
	return nil
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

// release lets other processes remove the program that this one has used.
func (p *hookPrograms) release() {
	if p.Release != nil {
		p.Release()
	}
}
