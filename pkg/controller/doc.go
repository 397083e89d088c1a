// Package controller maintains DeviceClasses from the node configurations in one ConfigMap and from what nodes publish: one for each
// MIG profile, and those that give extended resource names to devices for pods without claims. A policy refuses what such a name
// cannot give.
//
// NewPlan is pure: configurations and the classes there are in, wanted objects and problems out. All that it must remember, it
// reads from annotations of its own classes, so that a new leader knows as much as the old one. Reconciler carries a plan out.
//
// What belongs to the controller has its two labels. It never touches anything else, and leaves a name that somebody else's class
// has to that class.
package controller
