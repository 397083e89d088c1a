// Package protocol is shared by the kubelet plugin and prism-hook: the marks of devices in the environment of a container, and the requests
// of prism-hook to the plugin.
package protocol
