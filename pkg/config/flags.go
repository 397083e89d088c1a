package config

import (
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"
)

// Flag describes one flag for the reference documentation.
type Flag struct {
	// Name is the name without dashes; Shorthand is one letter or empty.
	Name, Shorthand string
	// Env are the environment variables that set it; the first one that is set takes precedence.
	Env []string
	// Key is the path in the configuration file, such as driver.root; empty if a file cannot set it.
	Key string
	// Default is empty for an empty one; Usage is the help text.
	Default, Usage string
}

// PluginFlags lists the flags of prism-kubelet-plugin by name.
func PluginFlags() []Flag {
	p := defaults()
	f := p.flags()
	addConfigFlag(f, "")
	return described(f, p)
}

// ControllerFlags lists the flags of prism-controller by name. It reads no configuration file.
func ControllerFlags() []Flag {
	return described(controllerDefaults().flags(), nil)
}

// described describes a flag set; file is the struct to which it is bound and which a configuration file fills, nil without a file.
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

// keyOf is the path of a flag's field in a configuration file: the value in the JSON that changes with the flag.
func keyOf(flag *pflag.Flag, file any) string {
	before := flattened(file)
	for _, value := range []string{"7", "true", "false", "7s", "x"} {
		if flag.Value.Set(value) != nil {
			continue
		}
		for path, text := range flattened(file) {
			if before[path] != text {
				return strings.TrimSuffix(path, "."+value) // the value is a key of a map
			}
		}
	}
	return ""
}

// flattened is the JSON of a struct, with each value by its path.
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
