// Package cdi joins device edits into one claim's CDI spec and keeps that spec's file.
//
// A spec holds what every device of the claim needs (driver libraries, control nodes) once, and per device its own nodes.
// Device nodes carry type, major and minor as they were found on the node, so that a runtime never has to guess; a node that
// is missing is an error here, not a container without a GPU. Only features of CDI 0.6.0 and before are used.
package cdi
