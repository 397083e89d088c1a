package config

import (
	"cmp"
	"path/filepath"
)

// PluginDir is the directory of this driver's sockets, records and locks.
func (p *Plugin) PluginDir() string { return filepath.Join(p.Paths.KubeletPlugins, p.DriverName) }

// RunDir is the directory that Prism's programs share on a node until it is rebooted; the same path on the host.
func (p *Plugin) RunDir() string { return cmp.Or(p.Paths.RunDir, filepath.Join("/run", p.DriverName)) }

// MetricsDir contains one directory for each claim whose metrics are exposed in its containers; prism-exporter writes to it.
func (p *Plugin) MetricsDir() string { return filepath.Join(p.RunDir(), "metrics") }

// defaultStateParent is the host's directory for state that survives reboots.
const defaultStateParent = "/var/lib"

// DefaultStateDir is the default state directory of a driver of that name.
func DefaultStateDir(driver string) string { return filepath.Join(defaultStateParent, driver) }

// ProgramsDir is the directory of programs that the container runtime executes on the host.
func (p *Plugin) ProgramsDir() string { return ProgramsIn(p.Paths.StateDir) }

// ProgramsIn is ProgramsDir for a state directory.
func ProgramsIn(stateDir string) string { return filepath.Join(stateDir, "programs") }

// HookSocket is the socket at which prism-hook requests memory limits of the newest process, and reports containers that it fails.
func (p *Plugin) HookSocket() string { return filepath.Join(p.RunDir(), "hook.sock") }

// InjectedDir contains a file for the current start of the container runtime once it has applied a CDI spec.
func (p *Plugin) InjectedDir() string { return filepath.Join(p.RunDir(), "injected") }

// ToolsDir contains the installed versions of the profiler.
func (p *Plugin) ToolsDir() string { return filepath.Join(p.Paths.StateDir, "tools") }

// ProfilesDir contains the plans and the reports of profiled claims.
func (p *Plugin) ProfilesDir() string { return filepath.Join(p.Paths.StateDir, "profiles") }

// CollectorDir contains the orders for prism-collector, and its folders.
func (p *Plugin) CollectorDir() string { return filepath.Join(p.Paths.StateDir, "collector") }

// FormerProgramsDir is the directory of these programs in earlier versions. Users other than root cannot reach it.
func (p *Plugin) FormerProgramsDir() string { return filepath.Join(p.PluginDir(), "bin") }
