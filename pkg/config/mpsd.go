package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// MPSD is the configuration of prism-mpsd. Its JSON form is printed at start.
type MPSD struct {
	// DriverName is the name of the DRA driver; it also sets the directory of sockets and control daemons.
	DriverName string `json:"driverName"`
	// HostRoot is the mount point of the host's root file system.
	HostRoot string `json:"hostRoot"`
	// DriverRoot is the root directory of the NVIDIA driver on the host; empty detects it.
	DriverRoot string `json:"driverRoot,omitempty"`
	// SearchDirs are directories in the driver's root that are searched for its library and programs before the default ones.
	SearchDirs Names `json:"searchDirs,omitempty"`
	// RunDir contains the socket and the directories of control daemons. It is the same path on the host.
	RunDir string `json:"runDir"`
	// Hardening selects the rights of the container that are removed from control daemons: "Full", "Mounts" or "None".
	Hardening string `json:"hardening"`
	// Logging configures the logs.
	Logging
}

// MPSDFlags lists the flags of prism-mpsd by name. It reads no configuration file.
func MPSDFlags() []Flag {
	return described(mpsdDefaults().flags(), nil)
}

// LoadMPSD reads the configuration from the arguments after the program's name and the environment. The error joins all validation errors.
func LoadMPSD(args []string, getenv func(string) string) (*MPSD, error) {
	m := mpsdDefaults()
	return load(m, m.flags(), args, getenv)
}

// mpsdDefaults are the values of a process without flags.
func mpsdDefaults() *MPSD {
	return &MPSD{DriverName: "gpu.prism.dev", HostRoot: "/host", Hardening: "Mounts", Logging: defaultLogging}
}

// flags binds every field to a flag; the value of the field is the default.
func (m *MPSD) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-mpsd", pflag.ContinueOnError)
	f.StringVar(&m.DriverName, "driver-name", m.DriverName, "name of the DRA driver; sets the directory of sockets and control daemons")
	f.StringVar(&m.HostRoot, "host-root", m.HostRoot, "mount point of the root filesystem of the host")
	f.StringVar(&m.DriverRoot, "nvidia-driver-root", m.DriverRoot, "root directory of the NVIDIA driver on the host; empty: detected")
	f.Var(&m.SearchDirs, "driver-search-dirs", searchDirsUsage)
	f.StringVar(&m.RunDir, "run-dir", m.RunDir, "directory of the socket and of control daemons, the same path on the host; empty: /run/<driver name>")
	f.StringVar(&m.Hardening, "hardening", m.Hardening, "which rights of the container are removed from new control daemons: Full, Mounts or None")
	m.Logging.flags(f)
	return f
}

// Socket is the path of the service's socket.
func (m *MPSD) Socket() string { return filepath.Join(m.RunDir, "mpsd.sock") }

// DaemonsDir contains the directories of the control daemons.
func (m *MPSD) DaemonsDir() string { return filepath.Join(m.RunDir, "mps") }

// derive sets values that depend on other values.
func (m *MPSD) derive() {
	if m.RunDir == "" {
		m.RunDir = filepath.Join("/run", m.DriverName)
	}
	clean(&m.HostRoot, &m.RunDir, &m.DriverRoot)
}

// validate reports every invalid value, with the flag that sets it.
func (m *MPSD) validate(bad invalid) {
	validateDriverName(m.DriverName, bad)
	for flag, path := range map[string]string{"host-root": m.HostRoot, "run-dir": m.RunDir} {
		if !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path, got %q", path)
		}
	}
	m.SearchDirs.validatePaths("driver-search-dirs", bad)
	if m.DriverRoot != "" && !filepath.IsAbs(m.DriverRoot) {
		bad("nvidia-driver-root", "must be an absolute path of the host, got %q", m.DriverRoot)
	}
	if hardenings := []string{"Full", "Mounts", "None"}; !slices.Contains(hardenings, m.Hardening) {
		bad("hardening", "unsupported value %q; supported values: %s", m.Hardening, strings.Join(hardenings, ", "))
	}
	m.Logging.validate(bad)
}
