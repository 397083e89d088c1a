// Package config makes one validated struct out of flags, environment, a file and defaults, in that order of precedence.
//
// Every flag has an environment twin, PRISM_ and the flag's name in capitals with underscores, and a key of the file in
// camel case: --driver-root, PRISM_DRIVER_ROOT, driverRoot.
package config
