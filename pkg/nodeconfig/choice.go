package nodeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Fallback is a way of choosing a configuration if neither a node's label nor a default names one.
type Fallback string

// The fallbacks, as the chart of NVIDIA's device plugin calls them.
const (
	// FallbackNamed takes the entry called "default".
	FallbackNamed Fallback = "named"
	// FallbackSingle takes the only entry.
	FallbackSingle Fallback = "single"
	// FallbackEmpty takes none: all GPUs are advertised whole.
	FallbackEmpty Fallback = "empty"
)

// Fallbacks are all that there are.
var Fallbacks = []Fallback{FallbackNamed, FallbackSingle, FallbackEmpty}

// entryDefault is the entry that FallbackNamed takes.
const entryDefault = "default"

// Choice says which of several configurations is a node's.
type Choice struct {
	// Label is the value of the node's label, and LabelKey its key, for errors; no value: the node lacks the label.
	Label, LabelKey string
	// Default is the entry for nodes without the label; empty: the first of Fallbacks that finds one.
	Default   string
	Fallbacks []Fallback
}

// Pick parses the chosen text among several, which are the data of a ConfigMap; the others are not read. It returns nil if FallbackEmpty
// was the choice, or if there is no text and none is named. An entry that is named and not there is an error, whatever the fallbacks.
// Errors begin like the device plugin's errors, and name the existing entries.
func Pick(data map[string]string, choice Choice) (*v1alpha1.NodeConfig, []Warning, error) {
	name, found, err := choice.entry(data)
	if err != nil || !found {
		return nil, nil, err
	}
	return Parse([]byte(data[name]), "entry "+name)
}

// entry is the name of the chosen entry, false if there is none.
func (c Choice) entry(data map[string]string) (name string, found bool, err error) {
	there := "there are: " + strings.Join(slices.Sorted(maps.Keys(data)), ", ")
	if len(data) == 0 {
		there = "there is no entry; add one with a " + v1alpha1.KindNodeConfig
	}
	has := func(name string) bool { _, ok := data[name]; return ok }
	switch {
	case c.Label != "" && !has(c.Label):
		return "", false, fmt.Errorf("specified config %s does not exist; the node's label %s names it: %s", c.Label, c.LabelKey, there)
	case c.Label != "":
		return c.Label, true, nil
	case c.Default != "" && !has(c.Default):
		return "", false, fmt.Errorf("specified config %s does not exist; it is the default: %s", c.Default, there)
	case c.Default != "":
		return c.Default, true, nil
	}
	return c.fallback(data, there)
}

// fallback is the entry to use if nothing names one. If there is no entry at all, there is no configuration.
func (c Choice) fallback(data map[string]string, there string) (name string, found bool, err error) {
	for _, fallback := range c.Fallbacks {
		_, named := data[entryDefault]
		switch {
		case fallback == FallbackNamed && named:
			return entryDefault, true, nil
		case fallback == FallbackSingle && len(data) == 1:
			return slices.Collect(maps.Keys(data))[0], true, nil
		case fallback == FallbackEmpty:
			return "", false, nil
		case !slices.Contains(Fallbacks, fallback):
			return "", false, fmt.Errorf("unknown fallback strategy: %s; allowed: named, single, empty", fallback)
		}
	}
	if len(data) == 0 {
		return "", false, nil
	}
	return "", false, fmt.Errorf("no config was set, no default was provided, and all fallbacks failed; label the node or set a default: %s", there)
}
