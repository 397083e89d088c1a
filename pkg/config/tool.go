package config

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Tool is the configuration of prism-tool. Its JSON form is printed at start.
type Tool struct {
	// Version is the version of Nsight Systems in the image, Path its directory, Versions are all versions to install on nodes.
	Version  string   `json:"version"`
	Path     string   `json:"path"`
	Versions []string `json:"versions"`
	// StateDir is the state directory of Prism on the host; the same path in the container.
	StateDir string `json:"stateDir"`
	// CDIRoot are directories of CDI specs.
	CDIRoots []string `json:"cdiRoots"`
	// WorkDir is a private directory of this container.
	WorkDir string `json:"workDir"`
	// ImportMemory limits the address space of the importer, ImportDeadline the time for one report.
	ImportMemory   resource.QuantityValue `json:"importMemory"`
	ImportDeadline time.Duration          `json:"importDeadline"`
	// ImportSpace limits the disk space of an import in WorkDir; 0: unlimited.
	ImportSpace resource.QuantityValue `json:"importSpace"`
	// Logging configures the logs.
	Logging
}

// ToolFlags lists the flags of prism-tool by name. It reads no configuration file.
func ToolFlags() []Flag { return described(toolDefaults().flags(), nil) }

// LoadTool reads the configuration from the arguments after the command, and the environment. The error joins all validation errors.
func LoadTool(args []string, getenv func(string) string) (*Tool, error) {
	t := toolDefaults()
	return load(t, t.flags(), args, getenv)
}

// toolDefaults are the values of a process without flags.
func toolDefaults() *Tool {
	return &Tool{
		StateDir: "/var/lib/gpu.prism.dev", CDIRoots: []string{"/var/run/cdi"}, WorkDir: "/run/prism",
		ImportMemory: resource.QuantityValue{Quantity: resource.MustParse("4Gi")}, ImportDeadline: 10 * time.Minute, Logging: defaultLogging,
	}
}

// flags binds every field to a flag; the value of the field is the default.
func (t *Tool) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("prism-tool", pflag.ContinueOnError)
	f.StringVar(&t.Version, "version", t.Version, "version of Nsight Systems in the image")
	f.StringVar(&t.Path, "path", t.Path, "directory of its installation in the image")
	f.StringSliceVar(&t.Versions, "versions", t.Versions, "all versions to install on nodes; others are removed from the node")
	f.StringVar(&t.StateDir, "state-dir", t.StateDir, "state directory of Prism on the host, the same in the container")
	f.StringSliceVar(&t.CDIRoots, "cdi-roots", t.CDIRoots, "directories of CDI specs: versions that a spec mounts are not removed")
	f.StringVar(&t.WorkDir, "work-dir", t.WorkDir, "private directory of this container")
	f.Var(&t.ImportMemory, "import-memory", "memory of the importer, as a quantity")
	f.Var(&t.ImportSpace, "import-space", "disk space of work-dir for importing a report, as a quantity; 0: unlimited")
	f.DurationVar(&t.ImportDeadline, "import-deadline", t.ImportDeadline, "time limit for importing a report")
	t.Logging.flags(f)
	return f
}

// derive sets values that depend on other values.
func (t *Tool) derive() {
	clean(&t.Path, &t.StateDir, &t.WorkDir)
	for i := range t.CDIRoots {
		clean(&t.CDIRoots[i])
	}
}

// validate reports every invalid value, with the flag that sets it.
func (t *Tool) validate(bad invalid) {
	if t.Version == "" || strings.ContainsAny(t.Version, "/ ") || strings.HasPrefix(t.Version, ".") {
		bad("version", "must be a version such as 2025.5.1, got %q", t.Version)
	}
	for flag, path := range map[string]string{"path": t.Path, "state-dir": t.StateDir, "work-dir": t.WorkDir} {
		if !filepath.IsAbs(path) {
			bad(flag, "must be an absolute path, got %q", path)
		}
	}
	if t.ImportMemory.Sign() <= 0 {
		bad("import-memory", "must be greater than 0, got %s", t.ImportMemory.String())
	}
	if t.ImportSpace.Sign() < 0 {
		bad("import-space", "must be greater than or equal to 0, got %s", t.ImportSpace.String())
	}
	if t.ImportDeadline <= 0 {
		bad("import-deadline", "must be greater than 0, got %v", t.ImportDeadline)
	}
	t.Logging.validate(bad)
}
