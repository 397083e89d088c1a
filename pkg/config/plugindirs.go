package config

import (
	"cmp"
	"path/filepath"
)

// PluginDir is where this driver keeps its sockets, records and locks.
func (p *Plugin) PluginDir() string { return filepath.Join(p.Paths.KubeletPlugins, p.DriverName) }

// RunDir is what the programs of Prism share on a node until it is rebooted; the same path on the host.
func (p *Plugin) RunDir() string { return cmp.Or(p.Paths.RunDir, filepath.Join("/run", p.DriverName)) }

// MetricsDir has one directory for each claim whose metrics are exposed in its containers, which prism-exporter writes to.
func (p *Plugin) MetricsDir() string { return filepath.Join(p.RunDir(), "metrics") }

// defaultStateParent is where the host keeps state over reboots.
const defaultStateParent = "/var/lib"

// DefaultStateDir is the state directory of a driver of that name where none is set.
func DefaultStateDir(driver string) string { return filepath.Join(defaultStateParent, driver) }

// ProgramsDir is where programs are that the container runtime executes on the host.
func (p *Plugin) ProgramsDir() string { return ProgramsIn(p.Paths.StateDir) }

// ProgramsIn is ProgramsDir of a state directory.
func ProgramsIn(stateDir string) string { return filepath.Join(stateDir, "programs") }

// HookSocket is where prism-hook requests memory limits of the newest process, and reports the containers that it fails.
func (p *Plugin) HookSocket() string { return filepath.Join(p.RunDir(), "hook.sock") }

// InjectedDir has a file for the present start of the container runtime once it has applied a CDI spec.
func (p *Plugin) InjectedDir() string { return filepath.Join(p.RunDir(), "injected") }

// ToolsDir has the installed versions of the profiler.
func (p *Plugin) ToolsDir() string { return filepath.Join(p.Paths.StateDir, "tools") }

// ProfilesDir has the plans and the reports of profiled claims.
func (p *Plugin) ProfilesDir() string { return filepath.Join(p.Paths.StateDir, "profiles") }

// FormerProgramsDir is where earlier versions kept them. Users other than root cannot reach it.
func (p *Plugin) FormerProgramsDir() string { return filepath.Join(p.PluginDir(), "bin") }
