package nodeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Parse reads one NodeConfig, in YAML or JSON, and fills in its defaults. The source is what people know the text by, as
// "file /etc/prism/node.yaml"; errors name it. Wherever the text could be read, they are a *v1alpha1.Problems with all that is
// wrong with it.
func Parse(raw []byte, source string) (*v1alpha1.NodeConfig, error) {
	config, err := v1alpha1.DecodeNodeConfig(raw)
	if err == nil {
		config.Default()
		err = config.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node configuration in %s: %w", source, err)
	}
	return config, nil
}

// Pick reads the NodeConfig of that name among several texts, which are the data of a ConfigMap. An empty name means the only
// one there is. Errors name the entries there are; the other entries are not read.
func Pick(data map[string]string, name string) (*v1alpha1.NodeConfig, error) {
	names := slices.Sorted(maps.Keys(data))
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("there is no entry; add one with a %s", v1alpha1.KindNodeConfig)
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("there are %d entries and none is chosen; choose one of: %s", len(names), strings.Join(names, ", "))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return nil, fmt.Errorf("there is no entry %q; choose one of: %s", name, strings.Join(names, ", "))
	}
	return Parse([]byte(data[name]), "entry "+name)
}
