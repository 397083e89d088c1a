package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// ErrHelp says that help was asked for and printed.
var ErrHelp = pflag.ErrHelp

// plainEnv are the names that a DaemonSet usually gives to what it knows of its pod.
var plainEnv = map[string]string{"node-name": "NODE_NAME", "pod-uid": "POD_UID"}

// LoadPlugin reads the configuration from the arguments after the program's name, the environment and the file that --config
// or PRISM_CONFIG names. The error joins everything that is wrong with it.
func LoadPlugin(args []string, getenv func(string) string) (*Plugin, error) {
	p := defaults()
	file, err := configFile(args, getenv)
	if err != nil {
		return nil, err
	}
	if file != "" {
		if err := p.read(file); err != nil {
			return nil, err
		}
	}
	f := p.flags()
	f.String("config", file, "file with any of these settings; environment and flags win over it")
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
		p.Paths.StateDir = filepath.Join(defaultStateParent, p.DriverName)
	}
	return p, p.validate()
}

// configFile finds the file's name before anything else is known.
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

// read lays the file over the settings; a key that is not one of them is refused.
func (p *Plugin) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--config: there is no file %s", file)
		}
		return fmt.Errorf("--config: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		return fmt.Errorf("--config: file %s: %w", file, err)
	}
	return nil
}

// fromEnv sets every flag that has a twin in the environment; an empty variable counts as unset.
func fromEnv(f *pflag.FlagSet, getenv func(string) string) error {
	var problems []error
	f.VisitAll(func(flag *pflag.Flag) {
		name := "PRISM_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value := getenv(name)
		if value == "" && plainEnv[flag.Name] != "" {
			name = plainEnv[flag.Name]
			value = getenv(name)
		}
		if value == "" {
			return
		}
		if err := flag.Value.Set(value); err != nil {
			problems = append(problems, fmt.Errorf("environment variable %s=%q: %w", name, value, err))
		}
	})
	return errors.Join(problems...)
}
