package gpus

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// checkFormat validates the flag --output.
func checkFormat(format string, more ...string) error {
	supported := append([]string{"wide", "json", "yaml"}, more...)
	if format != "" && !slices.Contains(supported, format) {
		return fmt.Errorf("--output: unsupported value %q; supported values: %s", format, strings.Join(supported, ", "))
	}
	return nil
}

// encode writes a value for programs, if the format is one for programs.
func encode(out io.Writer, format string, value any) (done bool, err error) {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "    ")
		return true, encoder.Encode(value)
	case "yaml":
		written, err := yaml.Marshal(value)
		if err == nil {
			_, err = out.Write(written)
		}
		return true, err
	}
	return false, nil
}
