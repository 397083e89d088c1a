package config

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"
)

// Flag describes one flag for the reference documentation.
type Flag struct {
	// Name has no dashes in front; Shorthand is one letter or empty.
	Name, Shorthand string
	// Env are the environment variables that set it, the first of them set takes precedence.
	Env []string
	// Key is the path in the configuration file, as driver.root; empty where a file cannot set it.
	Key string
	// Default is empty for an empty one; Usage is what --help prints.
	Default, Usage string
}

// PluginFlags lists the flags of prism-kubelet-plugin by name.
func PluginFlags() []Flag {
	p := defaults()
	f := p.flags()
	addConfigFlag(f, "")
	return described(f, p)
}

// ControllerFlags lists the flags of prism-controller by name. It has no configuration file.
func ControllerFlags() []Flag {
	return described(controllerDefaults().flags(), nil)
}

// described reads a flag set; file is the struct that it is bound to and that a configuration file fills, nil without a file.
func described(f *pflag.FlagSet, file any) []Flag {
	var all []Flag
	f.VisitAll(func(flag *pflag.Flag) {
		found := Flag{
			Name: flag.Name, Shorthand: flag.Shorthand, Env: envOf(flag.Name), Default: flag.DefValue, Usage: flag.Usage,
		}
		if file != nil {
			found.Key = keyOf(flag, file)
		}
		all = append(all, found)
	})
	return all
}

// keyOf is the path in a configuration file of the field that a flag sets: the one whose JSON changes with the flag.
func keyOf(flag *pflag.Flag, file any) string {
	before := flattened(file)
	for _, value := range []string{"7", "true", "false", "7s", "x"} {
		if flag.Value.Set(value) != nil {
			continue
		}
		for path, text := range flattened(file) {
			if before[path] != text {
				return path
			}
		}
	}
	return ""
}

// flattened is the JSON of a struct, each value by its path.
func flattened(of any) map[string]string {
	raw, err := json.Marshal(of)
	tree := map[string]any{}
	if err == nil {
		err = json.Unmarshal(raw, &tree)
	}
	values := map[string]string{}
	if err == nil {
		flatten(tree, "", values)
	}
	return values
}

func flatten(tree map[string]any, at string, values map[string]string) {
	for key, value := range tree {
		if below, ok := value.(map[string]any); ok {
			flatten(below, at+key+".", values)
			continue
		}
		raw, _ := json.Marshal(value)
		values[at+key] = string(raw)
	}
}

// envOf are the environment variables of a flag, in their order of precedence.
func envOf(name string) []string {
	env := []string{"PRISM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))}
	if plain := plainEnv[name]; plain != "" {
		env = append(env, plain)
	}
	return env
}
