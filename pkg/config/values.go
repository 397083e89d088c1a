package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// fallbacks are the strategies of pkg/nodeconfig.
var fallbacks = []string{"named", "single", "empty"}

// Names is a list, separated by commas in flags and environment variables. Setting it again replaces it.
type Names []string

// String is the list with commas.
func (n *Names) String() string { return strings.Join(*n, ",") }

// Set replaces the list; an empty text is an empty list.
func (n *Names) Set(text string) error {
	*n = nil
	if text != "" {
		*n = strings.Split(text, ",")
	}
	return nil
}

// Type is the type in help texts.
func (*Names) Type() string { return "names" }

// searchDirsUsage is the usage of --driver-search-dirs.
const searchDirsUsage = "directories of the driver's root in which its libraries and programs are searched for before the usual ones"

// validatePaths reports names that are not absolute paths.
func (n *Names) validatePaths(flag string, bad invalid) {
	for _, path := range *n {
		if !filepath.IsAbs(path) || strings.Contains(path, ":") {
			bad(flag, "must be absolute paths without colons, got %q", path)
		}
	}
}

// choice is a bool that may be unset.
type choice struct{ value **bool }

// String is the value, empty while it is unset.
func (c choice) String() string {
	if c.value == nil || *c.value == nil {
		return ""
	}
	return strconv.FormatBool(**c.value)
}

// Set parses the value with strconv.ParseBool.
func (c choice) Set(text string) error {
	value, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("must be true or false, got %q", text)
	}
	*c.value = &value
	return nil
}

// Type is the type in help texts.
func (choice) Type() string { return "bool" }
