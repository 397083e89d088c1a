package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// ErrHelp is returned after --help was printed.
var ErrHelp = pflag.ErrHelp

// plainEnv are further environment variables: the usual names for values of the downward API in a DaemonSet, and variables of NVIDIA's device
// plugin.
var plainEnv = map[string]string{
	"node-name": "NODE_NAME", "pod-uid": "POD_UID", "health-disable-checks": "DP_DISABLE_HEALTHCHECKS", "health-enable-checks": "DP_ENABLE_HEALTHCHECKS",
}

// settings are the configuration of a program. Before loading, its fields contain the defaults.
type settings interface {
	// flags binds every field to a flag; the value of the field is the default.
	flags() *pflag.FlagSet
	// derive sets values that depend on other values.
	derive()
	// validate reports every invalid value.
	validate(bad invalid)
}

// invalid is called for each invalid value with the flag that sets it.
type invalid = func(flag, format string, args ...any)

// load sets the values from the arguments after the program's name and the environment. The error joins all validation errors.
func load[S settings](s S, f *pflag.FlagSet, args []string, getenv func(string) string) (S, error) {
	var none S
	if err := fromEnv(f, getenv); err != nil {
		return none, err
	}
	if err := f.Parse(args); err != nil {
		return none, err
	}
	if len(f.Args()) > 0 {
		return none, fmt.Errorf("unexpected argument %q: only flags are accepted", f.Arg(0))
	}
	s.derive()
	var problems []error
	s.validate(func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	})
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return s, errors.Join(problems...)
}

// loadWithFile first sets the values from the file that --config or PRISM_CONFIG names.
func loadWithFile[S settings](s S, args []string, getenv func(string) string) (S, error) {
	var none S
	file, err := configFile(args, getenv)
	if err != nil {
		return none, err
	}
	if file != "" {
		if err := read(file, s); err != nil {
			return none, err
		}
	}
	f := s.flags()
	addConfigFlag(f, file)
	return load(s, f, args, getenv)
}

// validateDriverName validates a name that is used in directories and labels.
func validateDriverName(name string, bad invalid) {
	if problem := validation.IsDNS1123Subdomain(name); len(problem) > 0 || len(name) > 63 {
		bad("driver-name", "must be a DNS subdomain of at most 63 characters, got %q", name)
	}
}

// addConfigFlag adds the flag whose value configFile has already found.
func addConfigFlag(f *pflag.FlagSet, file string) {
	f.String("config", file, "configuration file; environment variables and flags take precedence")
}

// configFile finds the name of the file before the other flags are parsed.
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

// read overrides settings with the settings of the file; unknown keys are refused.
func read(file string, settings any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--config: file not found: %s", file)
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
