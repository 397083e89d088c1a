// Package config makes one validated struct of flags, environment variables, a configuration file and defaults, in that order of precedence.
//
// Every flag has an environment variable, PRISM_ and its name in capitals with underscores, and, of the plugin, a key of the file:
// --driver-root, PRISM_DRIVER_ROOT, driver.root.
package config
