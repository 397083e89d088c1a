package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// ErrHelp is returned when --help was printed.
var ErrHelp = pflag.ErrHelp

// plainEnv are further environment variables, by the names that the downward API usually has in a DaemonSet.
var plainEnv = map[string]string{"node-name": "NODE_NAME", "pod-uid": "POD_UID"}

// LoadPlugin reads the configuration from the arguments after the program name, the environment and the file that --config
// or PRISM_CONFIG names. The error joins all validation errors.
func LoadPlugin(args []string, getenv func(string) string) (*Plugin, error) {
	p := defaults()
	file, err := configFile(args, getenv)
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := read(file, p); err != nil {
			return nil, err
		}
	}
	f := p.flags()
	addConfigFlag(f, file)
	if err := fromEnv(f, getenv); err != nil {
		return nil, err
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if len(f.Args()) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are only flags", f.Arg(0))
	}
	if p.Paths.StateDir == "" {
		p.Paths.StateDir = DefaultStateDir(p.DriverName)
	}
	clean(&p.Paths.HostRoot, &p.Paths.CDIRoot, &p.Paths.KubeletPlugins, &p.Paths.KubeletRegistrar, &p.Paths.KubeletPodResources, &p.Paths.StateDir,
		&p.Paths.RunDir, &p.Driver.Root, &p.Driver.CDIHook, &p.NodeConfig.File)
	return p, p.validate()
}

// addConfigFlag adds the flag whose value configFile has found already.
func addConfigFlag(f *pflag.FlagSet, file string) {
	f.String("config", file, "configuration file; environment variables and flags take precedence")
}

// configFile finds the name of the file before anything else is known.
func configFile(args []string, getenv func(string) string) (string, error) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.Usage = func() {}
	file := f.String("config", getenv("PRISM_CONFIG"), "")
	if err := f.Parse(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return "", err
	}
	return *file, nil
}

// read overrides settings with those of the file; unknown keys are refused.
func read(file string, settings any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--config: there is no file %s", file)
		}
		return fmt.Errorf("--config: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, settings); err != nil {
		return fmt.Errorf("--config: file %s: %w", file, err)
	}
	return nil
}

// fromEnv sets the flags whose environment variable is set; an empty variable counts as unset.
func fromEnv(f *pflag.FlagSet, getenv func(string) string) error {
	var problems []error
	f.VisitAll(func(flag *pflag.Flag) {
		for _, name := range envOf(flag.Name) {
			value := getenv(name)
			if value == "" {
				continue
			}
			if err := flag.Value.Set(value); err != nil {
				problems = append(problems, fmt.Errorf("environment variable %s=%q: %w", name, value, err))
			}
			return
		}
	})
	return errors.Join(problems...)
}
