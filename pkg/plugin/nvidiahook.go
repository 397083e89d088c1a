package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/cdihook"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/hostfs"
)

// nvidiaHook chooses the program of each of NVIDIA's hooks: the host's program where that has the hook, else that of our image.
type nvidiaHook struct {
	// setting is that of --cdi-hook.
	setting string
	host    Host
	// ask returns the hooks of the host's program at a path.
	ask func(ctx context.Context, path string) ([]string, error)
	// install puts the program of our image in place.
	install func() (cdi.Installed, error)
	logger  klog.Logger

	mu   sync.Mutex
	own  cdi.Installed
	last hostHook
}

// hostHook is a hook program of the host.
type hostHook struct {
	path string
	id   hostfs.FileID
	// hooks are those that it has, err why they are not known.
	hooks []string
	err   error
	// missing are the hooks that were logged as missing.
	missing []string
}

// oldestHooks are those of every version, also of nvidia-ctk 1.15: what a program is assumed to have that does not print its help.
var oldestHooks = []string{"create-symlinks", "update-ldcache"}

// begin finds the program at the start, and fails where the setting asks for one that is not there, or that could not be executed.
func (n *nvidiaHook) begin(ctx context.Context) error {
	host, found := n.find()
	switch {
	case n.setting == config.NoCDIHook:
		return nil
	case n.setting == config.HostCDIHook && !found:
		return fmt.Errorf("--cdi-hook=host: there is no executable %s on the host", strings.Join(n.candidates(), ", "))
	case !found && n.setting != "" && n.setting != config.OwnCDIHook:
		return fmt.Errorf("--cdi-hook: there is no executable %s on the host", n.setting)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if found {
		n.refresh(ctx, host)
		return nil
	}
	_, err := n.ensureOwn()
	if errors.Is(err, fs.ErrNotExist) && n.setting == "" {
		return nil
	}
	return err
}

// candidates are the host's paths at which the setting allows a program.
func (n *nvidiaHook) candidates() []string {
	switch n.setting {
	case config.NoCDIHook, config.OwnCDIHook:
		return nil
	case "":
		return cdi.HostHooks
	case config.HostCDIHook:
		// Toolkits before 1.16 have their hooks in nvidia-ctk alone.
		paths := slices.Clone(cdi.HostHooks)
		for _, path := range cdi.HostHooks {
			paths = append(paths, filepath.Join(filepath.Dir(path), cdihook.CTKName))
		}
		return paths
	}
	return []string{n.setting}
}

// find finds the host's program.
func (n *nvidiaHook) find() (hostHook, bool) {
	path, found := n.host.Program(n.candidates()...)
	if !found {
		return hostHook{}, false
	}
	id, found := n.host.FileID(path)
	return hostHook{path: path, id: id}, found
}

// refresh reads the help of the host's program, unless that was done for this file. Hold the lock.
func (n *nvidiaHook) refresh(ctx context.Context, found hostHook) {
	if n.last.path == found.path && n.last.id == found.id {
		return
	}
	n.last = found
	n.last.hooks, n.last.err = n.ask(ctx, found.path)
	if n.last.err == nil {
		n.logger.V(2).Info("Hooks of the host's program", "program", found.path, "hooks", n.last.hooks)
		return
	}
	if n.setting == "" {
		if own, err := n.ensureOwn(); err == nil {
			n.logger.Info("The hook program of the host is not used", "program", found.path, "reason", n.last.err.Error(), "instead", own)
			return
		}
	}
	n.last.hooks = oldestHooks
	n.logger.Info("The hook program of the host is assumed to have the hooks of its oldest version", "program", found.path, "hooks", oldestHooks,
		"reason", n.last.err.Error())
}

// ensureOwn returns the path of the program of our image, which it installs where that was not done yet. Hold the lock.
func (n *nvidiaHook) ensureOwn() (path string, err error) {
	if n.own.Path == "" {
		n.own, err = n.install()
	}
	return n.own.Path, err
}

// used reports whether hooks are in CDI specs: the paths of their programs are set by edits.
func (n *nvidiaHook) used() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last.path != "" || n.own.Path != ""
}

// edits returns the edits with the program of each hook as the host has it now; hooks without a program are left out. The edits that are
// passed are not changed. Their hooks are named by their second argument.
func (n *nvidiaHook) edits(common *specs.ContainerEdits) *specs.ContainerEdits {
	if common == nil || len(common.Hooks) == 0 {
		return common
	}
	found, is := n.find()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case is:
		n.refresh(context.Background(), found)
	case n.setting == "":
		n.last = hostHook{missing: n.last.missing}
	}
	with := *common
	with.Hooks = nil
	for _, h := range common.Hooks {
		program := n.program(h.Args[1])
		if program == "" {
			continue
		}
		hook := *h
		hook.Path, hook.Args = program, append(cdihook.Args(program, h.Args[1]), h.Args[2:]...)
		with.Hooks = append(with.Hooks, &hook)
	}
	return &with
}

// program is the one of a hook, empty where there is none. Hold the lock.
func (n *nvidiaHook) program(hook string) string {
	if slices.Contains(n.last.hooks, hook) {
		return n.last.path
	}
	program, reason := "", "setting --cdi-hook (chart value nvidiaCDIHook)"
	if n.setting == "" || n.setting == config.OwnCDIHook {
		own, err := n.ensureOwn()
		program = own
		if err != nil {
			reason = err.Error()
		}
	}
	if slices.Contains(n.last.missing, hook) || program != "" && (n.last.path == "" || n.last.err != nil) {
		return program
	}
	n.last.missing = append(n.last.missing, hook)
	if program == "" {
		n.logger.Info("A CDI hook is left out: the hook program of the host does not have it", "hook", hook, "program", n.last.path,
			"whyNotThatOfTheImage", reason)
	} else {
		n.logger.Info("A CDI hook comes from the image: the hook program of the host does not have it", "hook", hook, "program", n.last.path,
			"instead", program)
	}
	return program
}

// installImage returns what puts the program of our image in place.
func installImage(ctx context.Context, cfg *config.Plugin, a Adapters, hooks cdi.Hooks) func() (cdi.Installed, error) {
	return func() (cdi.Installed, error) {
		installed, err := hooks.Install(a.Version, cdi.Program{Name: cdi.HookName, Image: a.HookImage})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cdi.Installed{}, fmt.Errorf("the image of the kubelet plugin has no %s: %w", a.HookImage, fs.ErrNotExist)
		case errors.Is(err, cdi.ErrNoExec):
			return cdi.Installed{}, fmt.Errorf("%w: set --state-dir (chart value stateDir) to a directory whose mount allows programs, or install %s on the host; "+
				"state directory now: %s", err, cdi.HookName, cfg.Paths.StateDir)
		case err != nil:
			return cdi.Installed{}, err
		}
		checkPlace(ctx, a.Host, installed.Path)
		return installed, nil
	}
}
