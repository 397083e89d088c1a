package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/events"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// statesFile is in the plugin's directory and lists which state directories there are and were.
const statesFile = "state-dirs.json"

// stateDirs are the state directories of the release on this node. CDI specs of claims that were prepared before the directory was changed name
// programs in the former one.
type stateDirs struct {
	*places
	// events are about the node; nil: the rest of a former directory is only logged.
	events events.Recorder
	// reported are the directories for which report has reported remaining folders.
	reported map[string]bool
}

// sweep removes the programs in former directories once no spec names them. Reports and installed profilers stay, and are reported. The rest of a
// directory is not Prism's, or is the present directory.
func (s stateDirs) sweep(ctx context.Context, specs *cdi.Dir) error {
	return s.places.sweep(func(at place, dir string) (kept bool, err error) {
		if at.Path == s.now.Path {
			return false, nil
		}
		former := config.Plugin{Paths: config.Paths{StateDir: at.Path}}
		if programs := former.ProgramsDir(); !s.presentIn(programs) {
			removed, _, err := cdi.Hooks{Disk: s.disk, Dir: config.ProgramsIn(dir), HostDir: programs, Extra: extensionPrograms}.Retire(specs)
			if len(removed) > 0 {
				klog.FromContext(ctx).V(2).Info("Removed hook programs from a former state directory", "directory", programs, "versions", removed)
			}
			if err != nil {
				return true, err
			}
		}
		names, err := s.disk.List(dir)
		if err != nil {
			return true, fmt.Errorf("listing the former state directory %s: %w", at.Path, err)
		}
		left := []string{former.ProgramsDir(), former.ProfilesDir(), former.ToolsDir(), former.CollectorDir()}
		left = slices.DeleteFunc(left, func(path string) bool { return !slices.Contains(names, filepath.Base(path)) || s.presentIn(path) })
		s.report(ctx, at.Path, left)
		return len(left) > 0, nil
	})
}

// presentIn reports whether the present directory is at a path, or below it.
func (s stateDirs) presentIn(path string) bool { return strings.HasPrefix(s.now.Path+"/", path+"/") }

// report reports once the folders of a former directory besides programs.
func (s stateDirs) report(ctx context.Context, path string, left []string) {
	left = slices.DeleteFunc(slices.Clone(left), func(folder string) bool { return folder == config.ProgramsIn(path) })
	if len(left) == 0 || s.reported[path] {
		return
	}
	s.reported[path] = true
	err := fmt.Errorf("the former state directory still has %q, which are not used: to keep reports of profiles, set stateDir to %s again; else delete these "+
		"folders when no profiled pod of before the change runs", left, path)
	klog.FromContext(ctx).Info("A former state directory is not empty", "reason", err.Error())
	if s.events != nil {
		s.events.Warn(events.StateDirectoryChanged, events.ActionReconcile, err.Error())
	}
}
