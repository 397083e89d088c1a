package main

import (
	"fmt"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/config"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/timeslice"
)

// state is what outlives the process.
type state struct {
	records *checkpoint.Store
	locks   *checkpoint.Locks
	specs   *cdi.Dir
	notes   *timeslice.Notes
}

func openState(cfg *config.Plugin, bootID string) (s state, err error) {
	files := disk.OS{}
	if err := files.MakeDir(cfg.PluginDir(), 0o750); err != nil {
		return s, fmt.Errorf("making the plugin's directory %s: %w", cfg.PluginDir(), err)
	}
	if err := files.SyncDir(filepath.Dir(cfg.PluginDir())); err != nil {
		return s, fmt.Errorf("making the plugin's directory %s durably: %w", cfg.PluginDir(), err)
	}
	if s.records, err = checkpoint.Open(files, cfg.PluginDir()); err != nil {
		return s, err
	}
	if s.locks, err = checkpoint.OpenLocks(cfg.PluginDir()); err != nil {
		return s, err
	}
	s.notes = timeslice.NewNotes(files, cfg.PluginDir(), bootID)
	s.specs, err = cdi.OpenDir(files, cfg.Paths.CDIRoot, cdi.Kind(cfg.DriverName))
	return s, err
}
