package programs

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
	// unread: the hooks are those of the file before, as its own are being read.
	unread bool
	// asking: another file is being asked.
	asking bool
}

// is reports whether both are the same file.
func (h *hostHook) is(other hostHook) bool { return h.path == other.path && h.id == other.id }

// oldestHooks are those of every version, also of nvidia-ctk 1.15: what a program is assumed to have that does not print its help.
var oldestHooks = []string{"create-symlinks", "update-ldcache"}

// begin finds the program at the start, and fails where the setting asks for one that is not there, or that could not be executed.
func (n *nvidiaHook) begin(ctx context.Context) error {
	host, found := n.find()
	switch {
	case n.setting == config.NoCDIHook:
		return nil
	case n.setting == config.HostCDIHook && !found:
		return fmt.Errorf("--cdi-hook=host: no executable %s on the host", strings.Join(n.candidates(), ", "))
	case !found && n.setting != "" && n.setting != config.OwnCDIHook:
		return fmt.Errorf("--cdi-hook: no executable %s on the host", n.setting)
	}
	if found {
		host.hooks, host.err = n.ask(ctx, host.path)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if found {
		n.learn(host)
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

// current is the host's program with the hooks that are known. Those of another file than before are read in the background: claims do not wait for a
// program that hangs, and get the program of our image meanwhile, or the hooks of the file before. Hold the lock.
func (n *nvidiaHook) current(found hostHook) *hostHook {
	if n.last.is(found) {
		return &n.last
	}
	if !n.last.asking {
		n.last.asking = true
		go n.read(found)
	}
	found.unread, found.hooks = true, n.last.hooks
	if n.last.path == "" {
		found.hooks = oldestHooks
	}
	if n.setting == "" {
		if _, err := n.ensureOwn(); err == nil {
			found.hooks = nil
		}
	}
	return &found
}

// read reads the hooks of a file, unless it is another one when the answer is there: that is read when the next claim asks for it.
func (n *nvidiaHook) read(found hostHook) {
	found.hooks, found.err = n.ask(context.Background(), found.path)
	now, is := n.find()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last.asking = false
	if is && now.is(found) {
		n.learn(found)
	}
}

// learn keeps what the host's program has answered. Hold the lock.
func (n *nvidiaHook) learn(found hostHook) {
	n.last = found
	if n.last.err == nil {
		n.logger.V(2).Info("Listed the hooks of the host's hook program", "program", found.path, "hooks", n.last.hooks)
		return
	}
	if n.setting == "" {
		if own, err := n.ensureOwn(); err == nil {
			n.logger.Info("The hook program of the host is not used", "program", found.path, "reason", n.last.err.Error(), "instead", own)
			return
		}
	}
	n.last.hooks = oldestHooks
	n.logger.Info("Assuming that the hook program of the host supports the hooks of its oldest version", "program", found.path, "hooks", oldestHooks,
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
	host := &n.last
	switch {
	case is:
		host = n.current(found)
	case n.setting == "":
		n.last = hostHook{missing: n.last.missing, asking: n.last.asking}
	}
	with := *common
	with.Hooks = nil
	for _, h := range common.Hooks {
		program := n.program(host, h.Args[1])
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
func (n *nvidiaHook) program(host *hostHook, hook string) string {
	if slices.Contains(host.hooks, hook) {
		return host.path
	}
	program, reason := "", "setting --cdi-hook (chart value nvidiaCDIHook)"
	if n.setting == "" || n.setting == config.OwnCDIHook {
		own, err := n.ensureOwn()
		program = own
		if err != nil {
			reason = err.Error()
		}
	}
	// Of a file that is being read, what it lacks is logged when that is known.
	if host.unread || slices.Contains(host.missing, hook) || program != "" && (host.path == "" || host.err != nil) {
		return program
	}
	host.missing = append(host.missing, hook)
	if program == "" {
		n.logger.Info("Omitting a CDI hook: the hook program of the host does not support it", "hook", hook, "program", host.path,
			"whyNotThatOfTheImage", reason)
	} else {
		n.logger.Info("Using a CDI hook from the image: the hook program of the host does not support it", "hook", hook, "program", host.path,
			"instead", program)
	}
	return program
}

// installImage returns what puts the program of our image in place.
func installImage(ctx context.Context, o Options, hooks cdi.Hooks) func() (cdi.Installed, error) {
	return func() (cdi.Installed, error) {
		installed, err := hooks.Install(o.Version, cdi.Program{Name: cdi.HookName, Image: o.Images.NVIDIA})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cdi.Installed{}, fmt.Errorf("the image of the kubelet plugin does not contain %s: %w", o.Images.NVIDIA, fs.ErrNotExist)
		case errors.Is(err, cdi.ErrNoExec):
			return cdi.Installed{}, fmt.Errorf("%w: set --state-dir (chart value stateDir) to a directory whose mount allows programs, or install %s on the host; "+
				"state directory now: %s", err, cdi.HookName, o.Config.Paths.StateDir)
		case err != nil:
			return cdi.Installed{}, err
		}
		checkPlace(ctx, o.Host, installed.Path)
		return installed, nil
	}
}
