package nodeconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Parse reads the configuration of a node, in YAML or JSON, and fills in its defaults. It is a NodeConfig, or a file of NVIDIA's
// device plugin (version: v1), which is translated into one; of that the warnings tell what is not taken over. The source is what
// people know the text by, as "file /etc/prism/node.yaml"; errors name it. Wherever the text could be read, they are a
// *v1alpha1.Problems with all that is wrong with it.
func Parse(raw []byte, source string) (*v1alpha1.NodeConfig, []Warning, error) {
	config, warnings, err := decode(raw)
	if err == nil {
		config.Default()
		err = config.Validate()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the node configuration in %s: %w", source, err)
	}
	return config, warnings, nil
}

// decode reads either dialect. Defaults are not filled in.
func decode(raw []byte) (*v1alpha1.NodeConfig, []Warning, error) {
	if forDevicePlugin(raw) {
		return decodeDevicePlugin(raw)
	}
	config, err := v1alpha1.DecodeNodeConfig(raw)
	return config, nil, err
}

// Pick parses the text of that name among several, which are the data of a ConfigMap. An empty name means the only one there is.
// Errors name the entries there are; the other entries are not read.
func Pick(data map[string]string, name string) (*v1alpha1.NodeConfig, []Warning, error) {
	names := slices.Sorted(maps.Keys(data))
	switch {
	case len(names) == 0:
		return nil, nil, fmt.Errorf("there is no entry; add one with a %s", v1alpha1.KindNodeConfig)
	case name == "" && len(names) > 1:
		return nil, nil, fmt.Errorf("there are %d entries and none is chosen; choose one of: %s", len(names), strings.Join(names, ", "))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return nil, nil, fmt.Errorf("there is no entry %q; choose one of: %s", name, strings.Join(names, ", "))
	}
	return Parse([]byte(data[name]), "entry "+name)
}
