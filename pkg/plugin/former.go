package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// releaseFile and namespaceFile are in the plugin's directory and contain the name and the namespace of the release. By these the release
// finds its directories of earlier driver names. Earlier versions wrote only the name, and read only the name after a rollback.
const (
	releaseFile   = "release"
	namespaceFile = "release-namespace"
)

// keptFolders and keptFiles are in the plugin's directory besides records, and are of use under another driver name. They contain the
// settings of GPUs that must be set back, the advertised layout of GPUs, and their findings.
var (
	keptFolders = []string{"intervals", "mps"}
	keptFiles   = []string{"layout.json", "health.json"}
)

// formerNames are the release's earlier driver names on this node of which some state remains. Their records, CDI specs and state are the
// driver's own as soon as no process of that name leads.
type formerNames struct {
	cfg      *config.Plugin
	adapters Adapters
	state    State // without the parts that are opened after this

	mu sync.Mutex
	// held contains the function that releases each name. waiting contains the reason why a name is not held: its process still runs.
	held    map[string]func()
	waiting map[string]error
	// othersEnded is closed when no process of another name runs any more: until then the devices of its records are not known.
	othersEnded chan struct{}
}

// formerDriverNames lists the directories of the release's plugins of other driver names. Unmarked are the directories that name no
// release. They may belong to another release, of a version that did not write the file, and are not changed. A directory without a
// namespace belongs to the release of its name.
func formerDriverNames(cfg *config.Plugin, d disk.Files) (names, unmarked []string) {
	if cfg.Release == "" {
		return nil, nil
	}
	releases := []string{cfg.Release, path.Base(cfg.Release)}
	// A release that takes over the directory of another one, as after it was installed in another namespace, takes over its earlier names.
	if before, err := releaseOf(cfg.PluginDir(), d); err == nil {
		releases = append(releases, before, path.Base(before))
	}
	all, _ := d.List(cfg.Paths.KubeletPlugins)
	for _, name := range all {
		dir := filepath.Join(cfg.Paths.KubeletPlugins, name)
		files, err := d.List(dir)
		if name == cfg.DriverName || err != nil || !slices.Contains(files, "locks") || !slices.Contains(files, "claims") {
			continue
		}
		release, err := releaseOf(dir, d)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			unmarked = append(unmarked, name)
		case err == nil && slices.Contains(releases, release):
			names = append(names, name)
		}
	}
	return names, unmarked
}

// releaseOf is the <namespace>/<name> of the release that a plugin's directory belongs to; the name alone if an earlier version wrote it.
// fs.ErrNotExist: the directory names no release.
func releaseOf(dir string, d disk.Files) (string, error) {
	name, err := d.Read(filepath.Join(dir, releaseFile))
	if err != nil {
		return "", fmt.Errorf("reading which release a directory is of: %w", err)
	}
	namespace, err := d.Read(filepath.Join(dir, namespaceFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading which namespace the release of a directory is in: %w", err)
	}
	return path.Join(string(namespace), string(name)), nil
}

// openFormer marks the plugin's directory with the release, and takes over the release's directories of other names.
func openFormer(ctx context.Context, cfg *config.Plugin, a Adapters, s State) (*formerNames, error) {
	f := &formerNames{cfg: cfg, adapters: a, state: s, held: map[string]func(){}, waiting: map[string]error{}, othersEnded: make(chan struct{})}
	if cfg.Release == "" {
		close(f.othersEnded)
		return f, nil
	}
	names, unmarked := formerDriverNames(cfg, a.Disk)
	if len(unmarked) > 0 {
		klog.FromContext(ctx).Info("Claims of other driver names are not taken over: which release prepared them is not known. If it was this one, set the former "+
			"driver name again, and change it after an upgrade", "drivers", unmarked)
	}
	for _, name := range names {
		if err := f.take(name, tryLead); err != nil {
			klog.FromContext(ctx).Info("Claims wait: the plugin still runs under an earlier driver name", "driver", name, "reason", err.Error())
			f.waiting[name] = err
		}
	}
	if len(f.waiting) == 0 {
		return f, f.taken()
	}
	if _, err := releaseOf(cfg.PluginDir(), a.Disk); errors.Is(err, fs.ErrNotExist) {
		return f, mark(cfg, a.Disk)
	}
	return f, nil
}

// taken ends the waiting for names. When no name waits any more, it marks the plugin's directory. Until then the old mark identifies the
// release's directories.
func (f *formerNames) taken(names ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		delete(f.waiting, name)
	}
	if len(f.waiting) > 0 {
		return nil
	}
	close(f.othersEnded)
	return mark(f.cfg, f.adapters.Disk)
}

// mark writes the release's name and namespace to a plugin's directory. The name comes last: without it a directory belongs to no release.
func mark(cfg *config.Plugin, d disk.Files) error {
	for _, file := range [][2]string{{namespaceFile, path.Dir(cfg.Release)}, {releaseFile, path.Base(cfg.Release)}} {
		at := filepath.Join(cfg.PluginDir(), file[0])
		if present, err := d.Read(at); err == nil && string(present) == file[1] {
			continue
		}
		if err := disk.Replace(d, at, []byte(file[1]), 0o600, true); err != nil {
			return fmt.Errorf("writing which release the directory of driver %s is of: %w", cfg.DriverName, err)
		}
	}
	return nil
}

// errStillRuns is why a name is not taken over yet.
var errStillRuns = errors.New("a process leads under that name")

// tryLead takes the lead lock of a name, unless a process of that name has it.
func tryLead(locks Locks) (release func(), err error) {
	release, err = locks.TryLead()
	if err == nil && release == nil {
		err = errStillRuns
	}
	return release, err
}

// take takes over the remaining state of a name under its lead lock. It does nothing if another process has removed the directory.
func (f *formerNames) take(name string, lead func(Locks) (release func(), err error)) error {
	locks, err := f.adapters.Locks(f.config(name).PluginDir())
	if err == nil {
		var release func()
		if release, err = lead(locks); err == nil {
			err = f.adopt(name, func() { release(); _ = locks.Close() })
		}
		if err != nil {
			err = errors.Join(err, locks.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// adopt makes the records and CDI specs of a name, and its settings of GPUs, the driver's own. The caller holds the lead lock of the name.
func (f *formerNames) adopt(name string, letGo func()) error {
	dir, own := f.config(name).PluginDir(), f.cfg.PluginDir()
	if err := mark(f.config(name), f.adapters.Disk); err != nil {
		return err
	}
	for _, folder := range keptFolders {
		if err := keep(f.adapters.Disk, filepath.Join(dir, folder), filepath.Join(own, folder)); err != nil {
			return fmt.Errorf("taking over the state of driver %s: %w", name, err)
		}
	}
	for _, file := range keptFiles {
		if err := keepFile(f.adapters.Disk, filepath.Join(dir, file), filepath.Join(own, file)); err != nil {
			return fmt.Errorf("taking over the state of driver %s: %w", name, err)
		}
	}
	err := errors.Join(f.state.Records.KeepDamaged(dir), f.state.outside.adopt(f.config(name)))
	if err != nil {
		return err
	}
	f.state.Records.Adopt(dir)
	f.state.Specs.Adopt(cdi.Kind(name))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[name] = letGo
	return nil
}

// keep moves the files of a folder that the other one does not have.
func keep(d disk.Files, from, to string) error {
	names, err := d.List(from)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := d.MakeDir(to, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := keepFile(d, filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// keepFile moves a file, unless the other one is there.
func keepFile(d disk.Files, from, to string) error {
	if _, err := d.Read(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.SyncDir(filepath.Dir(to))
}

// remove removes the remaining files of a name without claims.
func (f *formerNames) remove(name string) error {
	dir := f.config(name).PluginDir()
	err := removeRegistrations(f.adapters.Disk, f.cfg.Paths.KubeletRegistrar, name)
	if err = errors.Join(err, f.adapters.Disk.RemoveDir(dir)); err != nil {
		return fmt.Errorf("removing the directory of driver %s: %w", name, err)
	}
	f.state.Records.Disown(dir)
	f.state.Specs.Disown(cdi.Kind(name))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[name]()
	delete(f.held, name)
	return nil
}

// podUID matches the part after the driver's name in the names of registration sockets.
var podUID = regexp.MustCompile(`^-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// removeRegistrations removes the registration sockets that killed processes of a driver left. It keeps the sockets of a driver whose name
// only begins with the same text.
func removeRegistrations(d disk.Files, dir, name string) error {
	files, err := d.List(dir)
	for _, file := range files {
		uid, isOne := strings.CutPrefix(file, name)
		uid, isSocket := strings.CutSuffix(uid, "-reg.sock")
		if isOne && isSocket && (uid == "" || podUID.MatchString(uid)) {
			err = errors.Join(err, d.Remove(filepath.Join(dir, file)))
		}
	}
	return err
}

// close lets other processes take over the remaining names.
func (f *formerNames) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, letGo := range f.held {
		letGo()
		delete(f.held, name)
	}
}

// config is the configuration of the plugin under an earlier name.
func (f *formerNames) config(name string) *config.Plugin {
	cfg := *f.cfg
	cfg.DriverName = name
	return &cfg
}

// names lists the held names.
func (f *formerNames) names() []string {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.held {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// configs are the configurations of the held names.
func (f *formerNames) configs() (all []*config.Plugin) {
	for _, name := range f.names() {
		all = append(all, f.config(name))
	}
	return all
}

// has reports whether the name is one of the release's, held or not.
func (f *formerNames) has(name string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[name] != nil || f.waiting[name] != nil
}

// withheld is why claims get no GPU yet: a process of an earlier name may be preparing claims, and its locks are not ours.
func (f *formerNames) withheld() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, cause := range f.waiting {
		return fmt.Errorf("the GPUs of the node are withheld: the plugin of driver %s, which is %s now, still runs on the node (%w); its pod ends with the "+
			"rollout of the DaemonSet", name, f.cfg.DriverName, cause)
	}
	return nil
}
