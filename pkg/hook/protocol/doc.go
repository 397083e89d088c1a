// Package protocol is what the kubelet plugin and prism-hook have in common: the marks of devices in the environment of a container, and
// what prism-hook requests of the plugin.
package protocol
