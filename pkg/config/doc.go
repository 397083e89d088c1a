// Package config loads one validated struct from flags, environment variables, a configuration file and defaults, in that order of
// precedence.
//
// Each flag corresponds to an environment variable, PRISM_ and its name in capitals with underscores, and, for the plugin and the exporter,
// to a key of the file: --driver-root, PRISM_DRIVER_ROOT, driver.root.
package config
