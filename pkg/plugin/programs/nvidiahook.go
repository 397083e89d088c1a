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

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/hostfs"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/cdihook"
)

// nvidiaHook chooses the program of each of NVIDIA's hooks: the host's program if it supports the hook, else the program of our image.
type nvidiaHook struct {
	// setting is the value of --cdi-hook.
	setting string
	host    Host
	// ask returns the hooks of the host's program at a path.
	ask func(ctx context.Context, path string) ([]string, error)
	// install installs the program of our image.
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
	// hooks are its supported hooks, err is the reason if they are unknown.
	hooks []string
	err   error
	// missing are the hooks that were logged as missing.
	missing []string
	// unread: the hooks belong to the previous file, because the help of the new file is being read.
	unread bool
	// asking: the help of another file is being read.
	asking bool
}

// is reports whether both are the same file.
func (h *hostHook) is(other hostHook) bool { return h.path == other.path && h.id == other.id }

// oldestHooks are supported by every version, including nvidia-ctk 1.15. They are assumed for a program that does not print its help.
var oldestHooks = []string{"create-symlinks", "update-ldcache"}

// begin finds the program at the start. It fails if the setting requires a program that is missing or cannot be executed.
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

// candidates returns the host's paths at which the setting allows a program.
func (n *nvidiaHook) candidates() []string {
	switch n.setting {
	case config.NoCDIHook, config.OwnCDIHook:
		return nil
	case "":
		return cdi.HostHooks
	case config.HostCDIHook:
		// Toolkits before 1.16 provide their hooks only in nvidia-ctk.
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

// current returns the host's program with its known hooks. The help of a new file is read in the background: claims do not wait for a
// program that hangs, and use the program of our image in the meantime, or the hooks of the previous file. Hold the lock.
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

// read reads the hooks of a file. If the file was replaced in the meantime, the result is dropped, and the next claim reads the new file.
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

// learn stores the answer of the host's program. Hold the lock.
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

// ensureOwn returns the path of the program of our image, and installs it if necessary. Hold the lock.
func (n *nvidiaHook) ensureOwn() (path string, err error) {
	if n.own.Path == "" {
		n.own, err = n.install()
	}
	return n.own.Path, err
}

// used reports whether CDI specs contain hooks: edits sets the paths of their programs.
func (n *nvidiaHook) used() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last.path != "" || n.own.Path != ""
}

// edits returns the edits with the host's current program for each hook; it omits hooks without a program. It does not change the passed
// edits. Their hooks are named by their second argument.
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

// program returns the program of a hook, or an empty string. Hold the lock.
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
	// The missing hooks of a file that is being read are logged once they are known.
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

// installImage returns a function that installs the program of our image.
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
