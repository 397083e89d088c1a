package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/plugin/timeslice"
)

// State is the data that outlives the process, and the ID of the boot in which it is read.
type State struct {
	Records   *checkpoint.Store
	Locks     Locks
	Specs     *cdi.Dir
	Intervals *timeslice.Store
	BootID    string

	former  *formerNames
	outside outside
}

// close releases the locks for other processes.
func (s *State) close() error {
	s.former.close()
	return s.Locks.Close()
}

// openState opens the plugin's directories, and makes missing ones. Close the locks.
func openState(ctx context.Context, cfg *config.Plugin, a Adapters) (s State, err error) {
	if s.BootID, err = a.Host.BootID(); err != nil {
		return s, err
	}
	dir := cfg.PluginDir()
	if err := a.Disk.MakeDir(dir, 0o750); err != nil {
		return s, fmt.Errorf("making the plugin's directory %s: %w", dir, err)
	}
	if err := a.Disk.SyncDir(filepath.Dir(dir)); err != nil {
		return s, fmt.Errorf("making the plugin's directory %s durably: %w", dir, err)
	}
	if s.Records, err = checkpoint.Open(a.Disk, dir); err != nil {
		return s, err
	}
	s.Intervals = timeslice.NewStore(a.Disk, dir, s.BootID)
	if s.Locks, err = a.Locks(dir); err != nil {
		return s, err
	}
	if s.Specs, err = cdi.OpenDir(a.Disk, cfg.Paths.CDIRoot, cdi.Kind(cfg.DriverName)); err != nil {
		return s, errors.Join(err, s.Locks.Close())
	}
	if s.outside, err = openOutside(cfg, a); err == nil {
		s.former, err = openFormer(ctx, cfg, a, s)
	}
	if err != nil {
		return s, errors.Join(err, s.close())
	}
	return s, nil
}

// outside are the plugin's directories outside of its own one.
type outside struct {
	roots  cdiRoots
	states stateDirs
}

// openOutside reads the present and former paths of these directories.
func openOutside(cfg *config.Plugin, a Adapters) (o outside, err error) {
	o.states.reported = map[string]bool{}
	if o.roots.places, err = openPlaces(cfg, a, rootsFile, cfg.Paths.CDIRoot, cfg.Paths.CDIRoot); err != nil {
		return o, err
	}
	o.states.places, err = openPlaces(cfg, a, statesFile, cfg.Paths.StateDir, config.DefaultStateDir(cfg.DriverName))
	return o, err
}

// adopt adds the directories of the plugin of an earlier driver name, with its configuration.
func (o outside) adopt(former *config.Plugin) error {
	dir, name := former.PluginDir(), former.DriverName
	return errors.Join(
		o.roots.add(filepath.Join(dir, rootsFile), place{former.Paths.CDIRoot, name}),
		o.states.add(filepath.Join(dir, statesFile), place{config.DefaultStateDir(name), name}),
	)
}
