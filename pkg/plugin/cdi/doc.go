// Package cdi joins device edits into one claim's CDI spec and keeps that spec's file.
//
// A spec contains the edits that all devices of the claim need (driver libraries, control nodes) once, and the nodes of each device. Device
// nodes include type, major and minor as found on the node, so that a runtime never has to guess. A missing node is an error of this
// package, rather than a container without a GPU. Specs use only features of CDI 0.6.0 and before.
package cdi
