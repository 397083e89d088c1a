package nodeconfig

import (
	"errors"
	"fmt"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

// Parse reads the configuration of a node, in YAML or JSON, and fills in its defaults. It is a NodeConfig, or a file of NVIDIA's device
// plugin (version: v1), which is translated into one; the warnings name the settings that are not translated. The source is the text's name
// for users, such as "file /etc/prism/node.yaml"; errors name it. If the text could be read, an error is a *v1alpha1.Problems with all
// problems of the text.
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
	if problems, ok := errors.AsType[*v1alpha1.Problems](err); ok {
		for _, problem := range problems.List {
			if problem.Path == "apiVersion" {
				problem.Text += "; or only version: " + devicePluginVersion + " in a file of NVIDIA's device plugin"
			}
		}
	}
	return config, nil, err
}
